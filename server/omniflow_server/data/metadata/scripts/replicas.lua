-- What scripts of replicas share.
--
-- KEYS: 4 facts (name -> packed lease id, state, load, drain, incarnation, replaced incarnations ...), 5 rows (name -> row),
--       6 replica leases (name -> end in ms), 7 revisions (name -> revision of its last change),
--       8 removed (name -> revision of its removal)

local FACTS, ROWS, REPLICA_LEASES, REVISIONS, REMOVED = KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local LEASE_ID, STATE, LOAD, DRAIN, INCARNATION = 1, 2, 3, 4, 5

local function facts_of(name)
  local packed = redis.call('HGET', FACTS, name)
  return packed and cmsgpack.unpack(packed)
end

local function put_facts(name, facts)
  redis.call('HSET', FACTS, name, cmsgpack.pack(facts))
end

local function next_revision()
  local revision = next_number()
  redis.call('HSET', META, 'replica_revision', revision)
  return revision
end

local function changed(name)
  redis.call('ZADD', REVISIONS, next_revision(), name)
end

local function remove_replica(name, kept_changes)
  redis.call('HDEL', FACTS, name)
  redis.call('HDEL', ROWS, name)
  redis.call('ZREM', REPLICA_LEASES, name)
  redis.call('ZREM', REVISIONS, name)
  redis.call('ZADD', REMOVED, next_revision(), name)
  if redis.call('ZCARD', REMOVED) > kept_changes then
    redis.call('HSET', META, 'trimmed_revision', whole(tonumber(redis.call('ZPOPMIN', REMOVED)[2])))
  end
end
