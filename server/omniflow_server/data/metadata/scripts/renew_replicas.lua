-- uses: lives replicas
-- ARGV: 3 ttl_ms, then (name, lease id, state, load) of each renewal
-- Answers the lease ids that are unknown.

local ttl_ms = tonumber(ARGV[3])

local function renew(name, lease_id, state, load)
  local facts = facts_of(name)
  if not facts or facts[LEASE_ID] ~= lease_id then return false end
  if facts[STATE] ~= state then changed(name) end
  if facts[STATE] ~= state or facts[LOAD] ~= load then
    facts[STATE], facts[LOAD] = state, load
    put_facts(name, facts)
  end
  redis.call('ZADD', REPLICA_LEASES, whole(NOW_MS + ttl_ms), name)
  return true
end

if not is_owner(EPOCH) then return STALE_OWNER end
local answer = {'OK'}
for i = 4, #ARGV, 4 do
  if not renew(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]) then answer[#answer + 1] = ARGV[i + 1] end
end
return answer
