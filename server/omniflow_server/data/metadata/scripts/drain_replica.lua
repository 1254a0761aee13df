-- uses: lives replicas
-- ARGV: 3 name, 4 drain, 5 state

if not is_owner(EPOCH) then return STALE_OWNER end
local name, drain, state = ARGV[3], ARGV[4], ARGV[5]
local facts = facts_of(name)
if not facts then return {'UNKNOWN'} end
if facts[DRAIN] ~= drain or facts[STATE] ~= state then
  facts[DRAIN], facts[STATE] = drain, state
  put_facts(name, facts)
  changed(name)
end
return {'OK'}
