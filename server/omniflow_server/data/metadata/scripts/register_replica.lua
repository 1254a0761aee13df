-- uses: lives replicas
-- ARGV: 3 ttl_ms, 4 name, 5 lease id, 6 state, 7 load, 8 drain, "" for none, 9 incarnation, 10 row, 11 state of a ready
--       replica, 12 number of incarnations to remember
-- Answers the incarnation that has replaced this one, if one has.

local ttl_ms, name, incarnation, remembered = tonumber(ARGV[3]), ARGV[4], ARGV[9], tonumber(ARGV[12])
local facts = {ARGV[5], ARGV[6], ARGV[7], ARGV[8], incarnation}

local function is_replaced(before)
  for i = INCARNATION + 1, #before do
    if before[i] == incarnation then return true end
  end
  return false
end

-- Newest first.
local function remember(before)
  for i = INCARNATION, math.min(#before, INCARNATION + remembered - 1) do facts[i + 1] = before[i] end
end

local function keep(before)
  for i = INCARNATION + 1, #before do facts[i] = before[i] end
  if facts[DRAIN] == '' and facts[STATE] ~= ARGV[11] then facts[DRAIN] = before[DRAIN] end
end

if not is_owner(EPOCH) then return STALE_OWNER end
local before = facts_of(name)
if before and before[INCARNATION] == incarnation then
  keep(before)
elseif before then
  if is_replaced(before) then return {'REPLACED', before[INCARNATION]} end
  remember(before)
end
put_facts(name, facts)
redis.call('HSET', ROWS, name, ARGV[10])
redis.call('ZADD', REPLICA_LEASES, whole(NOW_MS + ttl_ms), name)
redis.call('ZREM', REMOVED, name)
changed(name)
return {'OK'}
