-- uses: lives replicas
-- ARGV: 3 name, 4 lease id, 5 kept changes

if not is_owner(EPOCH) then return STALE_OWNER end
local facts = facts_of(ARGV[3])
if facts and facts[LEASE_ID] == ARGV[4] then remove_replica(ARGV[3], tonumber(ARGV[5])) end
return {'OK'}
