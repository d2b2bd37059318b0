import assert from 'node:assert/strict';
import test from 'node:test';
import { placedAt, read } from './trade.js';

const GOOD = {
  userId: '134256', currencyFrom: 'EUR', currencyTo: 'GBP', amountSell: 1000, amountBuy: 747.1, rate: 0.7471,
  timePlaced: '24-JAN-15 10:27:44', originatingCountry: 'FR',
};

test('what is wrong with a message', () => {
  const check = (change, expected) =>
    assert.equal(read(JSON.stringify({ ...GOOD, ...change })).wrong, expected, JSON.stringify(change));
  check({}, undefined);
  for (const originatingCountry of ['DE', 'BR', 'ZA', 'XK']) check({ originatingCountry }, undefined);
  check({ userId: 134256 }, 'user');
  check({ userId: '' }, 'user');
  check({ currencyFrom: 'EUX' }, 'currency');
  check({ currencyTo: 'EUR' }, 'currency');
  check({ amountSell: 0 }, 'amount');
  check({ amountBuy: '747.10' }, 'amount');
  check({ rate: -1 }, 'rate');
  check({ timePlaced: '31-FEB-15 10:27:44' }, 'date');
  check({ timePlaced: { toString: 1 } }, 'date');
  check({ originatingCountry: 'XX' }, 'country');
  for (const originatingCountry of ['ZZ', 'SU', 'DD', 'UK', 'AN']) check({ originatingCountry }, 'country');
  check({ originatingCountry: undefined }, 'country');
  for (const text of ['', '{"userId":"1"', 'null', '7']) assert.equal(read(text).wrong, 'json', text);
  const trade = { user: '134256', from: 'EUR', to: 'GBP', rate: 0.7471, country: 'FR' };
  assert.deepEqual(read(JSON.stringify(GOOD)), { trade });
});

test('days and times that there are', () => {
  const check = (text, expected) => assert.equal(placedAt(text), expected, text);
  check('24-JAN-15 10:27:44', Date.UTC(2015, 0, 24, 10, 27, 44));
  check('29-FEB-16 23:59:59', Date.UTC(2016, 1, 29, 23, 59, 59));
  for (const text of ['29-FEB-15 00:00:00', '00-JAN-15 00:00:00', '24-JAN-15 24:00:00', '24-jan-15 10:27:44',
    '24-JAN-2015 10:27:44', '2015-01-24', '', undefined]) check(text, NaN);
});
