-- Stores a batch, all of it or nothing, and each message only the first time: a batch that is sent again, or cut
-- differently, changes nothing. ARGV[1] is a JSON list of { id, trade } or { id, wrong }; KEYS are all keys that the
-- script touches. Redis does not undo what a failed script has written, so whatever a batch can make fail comes first.
local SEEN, USERS, MESSAGES, BATCHES, RATES = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
-- Sums are computed here, so that a batch costs a write per country and pair, not per message.
local countries, sold, bought, flows, wrong, rates, users = {}, {}, {}, {}, {}, {}, {}
local new, is_new = {}, {}
local function one(sums, name) sums[name] = (sums[name] or 0) + 1 end

for _, entry in ipairs(cjson.decode(ARGV[1])) do
  if not is_new[entry.id] and redis.call('SISMEMBER', SEEN, entry.id) == 0 then
    new[#new + 1], is_new[entry.id] = entry.id, true
    local trade = entry.trade
    if trade then
      users[#users + 1] = trade.user
      one(countries, trade.country)
      one(sold, trade.from)
      one(bought, trade.to)
      one(flows, trade.from .. '>' .. trade.to)
      rates[trade.from .. '>' .. trade.to] = string.format('%.10g', trade.rate)
    else
      one(wrong, entry.wrong)
    end
  end
end

local function write(command, key, list)
  for from = 1, #list, 1000 do redis.call(command, key, unpack(list, from, math.min(from + 999, #list))) end
end
write('SADD', SEEN, new)
write('RPUSH', USERS, users)
if #users > 0 then redis.call('INCRBY', MESSAGES, #users) end
for place, sums in ipairs({ countries, sold, bought, flows, wrong }) do
  for name, sum in pairs(sums) do redis.call('HINCRBY', KEYS[5 + place], name, sum) end
end
for pair, rate in pairs(rates) do redis.call('HSET', RATES, pair, rate) end
redis.call('INCR', BATCHES)
redis.call('PUBLISH', 'updates', #users)
