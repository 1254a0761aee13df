-- uses: lives replicas
-- ARGV: 3 ttl_ms, 4 draining, 5 replica ttl_ms, 6 pause_ms, 7 kept changes, 8 most items
-- Answers whether more replicas have run out than it could take away, the store's incarnation, the graph revision, and
-- (epoch, draining, row) of each owner.

local ttl_ms, draining, replica_ttl_ms = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local pause_ms, kept_changes, most_items = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])

local function renew()
  redis.call('ZADD', LEASES, whole(NOW_MS + ttl_ms), EPOCH)
  local owner = cmsgpack.unpack(redis.call('HGET', OWNERS, EPOCH))
  if owner[3] ~= draining then
    owner[3] = draining
    redis.call('HSET', OWNERS, EPOCH, cmsgpack.pack(owner))
  end
end

local function end_owners(resumed_ms)
  if resumed_ms + ttl_ms > NOW_MS then return end
  for _, epoch in ipairs(redis.call('ZRANGEBYSCORE', LEASES, '-inf', whole(NOW_MS))) do
    end_life(epoch)
  end
end

local function end_replicas(resumed_ms)
  if resumed_ms + replica_ttl_ms > NOW_MS then return '0' end
  local names = redis.call('ZRANGEBYSCORE', REPLICA_LEASES, '-inf', whole(NOW_MS), 'LIMIT', 0, most_items)
  for _, name in ipairs(names) do
    remove_replica(name, kept_changes)
  end
  return #names == most_items and '1' or '0'
end

local function told_owners(answer)
  local owners = redis.call('HGETALL', OWNERS)
  for i = 1, #owners, 2 do
    local owner = cmsgpack.unpack(owners[i + 1])
    answer[#answer + 1] = owners[i]
    answer[#answer + 1] = owner[3]
    answer[#answer + 1] = owner[4]
  end
  return answer
end

if not is_owner(EPOCH) then return STALE_OWNER end
notice_pause(pause_ms)
redis.call('HSET', META, 'last_tick_ms', whole(NOW_MS), 'ttl_ms', ARGV[3])
renew()
local resumed_ms = meta('resumed_ms')
end_owners(resumed_ms)
local has_more = end_replicas(resumed_ms)
return told_owners({'OK', has_more, redis.call('HGET', META, 'incarnation'), whole(meta('graph_revision'))})
