// A constant rate in k6, whatever the server does.
import http from 'k6/http';
export const options = { scenarios: { open: {
  executor: 'constant-arrival-rate', rate: {rate}, timeUnit: '1s', duration: '{s}s', preAllocatedVUs: 100, maxVUs: 2000,
} } };
export default function () { http.get('{url}'); }
