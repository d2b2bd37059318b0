// A trade message: what makes it valid, and its short form for the storage.

/** ISO 4217 codes, as the runtime knows them. */
const CURRENCIES = new Set(Intl.supportedValuesOf('currency'));

/** ISO 3166-1 alpha-2 codes: those that have a name as a region, without those that are not countries. */
const COUNTRIES = new Set(regions());

const MONTHS = ['JAN', 'FEB', 'MAR', 'APR', 'MAY', 'JUN', 'JUL', 'AUG', 'SEP', 'OCT', 'NOV', 'DEC'];
const PLACED = /^(\d{2})-([A-Z]{3})-(\d{2}) (\d{2}):(\d{2}):(\d{2})$/;

function* regions() {
  const names = new Intl.DisplayNames('en', { type: 'region', fallback: 'none' });
  const others = new Set([
    'EU', 'EZ', 'UN', 'QO', 'XA', 'XB', 'ZZ', // groups, and codes for users
    'AC', 'CP', 'CQ', 'DG', 'EA', 'IC', 'TA', 'UK', // exceptionally reserved
    'AN', 'BU', 'CS', 'DD', 'DY', 'FX', 'HV', 'NH', 'NT', 'RH', 'SU', 'TP', 'VD', 'YD', 'YU', 'ZR', // no longer in use
  ]);
  const letters = [...'ABCDEFGHIJKLMNOPQRSTUVWXYZ'];
  for (const code of letters.flatMap((first) => letters.map((second) => first + second))) {
    if (!others.has(code) && names.of(code)) yield code;
  }
}

/** Milliseconds since 1970 of a text such as `24-JAN-15 10:27:44`; NaN for a day or time that does not exist. */
export function placedAt(text) {
  if (typeof text !== 'string') return NaN;
  const [, day, name, year, hour, minute, second] = PLACED.exec(text) ?? [];
  const month = MONTHS.indexOf(name);
  if (month < 0 || hour > 23 || minute > 59 || second > 59) return NaN;
  const at = new Date(Date.UTC(2000 + Number(year), month, day, hour, minute, second));
  return at.getUTCDate() === Number(day) ? at.getTime() : NaN;
}

const positive = (value) => typeof value === 'number' && Number.isFinite(value) && value > 0;

/**
 * Returns a message as `{ trade }`, or `{ wrong }` with the first mistake: `json`, `user`, `currency`, `amount`, `rate`,
 * `date` or `country`.
 */
export function read(bytes) {
  let message;
  try {
    message = JSON.parse(bytes);
  } catch {
    return { wrong: 'json' };
  }
  if (message === null || typeof message !== 'object') return { wrong: 'json' };
  const { userId, currencyFrom: from, currencyTo: to, amountSell, amountBuy, rate, originatingCountry } = message;
  if (typeof userId !== 'string' || !/^\d{1,20}$/.test(userId)) return { wrong: 'user' };
  if (!CURRENCIES.has(from) || !CURRENCIES.has(to) || from === to) return { wrong: 'currency' };
  if (!positive(amountSell) || !positive(amountBuy)) return { wrong: 'amount' };
  if (!positive(rate)) return { wrong: 'rate' };
  if (Number.isNaN(placedAt(message.timePlaced))) return { wrong: 'date' };
  if (!COUNTRIES.has(originatingCountry)) return { wrong: 'country' };
  return { trade: { user: userId, from, to, rate, country: originatingCountry } };
}
