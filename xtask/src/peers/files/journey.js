// journey.yaml, written for k6.
import http from 'k6/http';
import exec from 'k6/execution';
import { check } from 'k6';
import { SharedArray } from 'k6/data';
const people = new SharedArray('people', () => open('./people.csv').trim().split('\n').slice(1).map((line) => {
  const [user, item] = line.split(',');
  return { user, item };
}));
export default function () {
  const row = people[exec.scenario.iterationInTest % people.length];
  const login = http.get(`{url}/login?user=${row.user}`, { tags: { name: 'login' } });
  check(login, { ok: (r) => r.status === 200 && r.body.includes('token') });
  const token = login.json('token');
  const item = http.get(`{url}/item?id=${row.item}`, { headers: { Authorization: `Bearer ${token}` }, tags: { name: 'item' } });
  check(item, { ok: (r) => r.status === 200 && r.json('state') === 'ok' });
}
