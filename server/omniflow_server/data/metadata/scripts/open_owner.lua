-- uses: lives
-- ARGV: 3 ttl_ms, 4 owner id, 5 incarnation, 6 draining, 7 row, 8 incarnation of the store, if it is a new one
-- Answers the epoch.

local ttl_ms, owner_id, incarnation = tonumber(ARGV[3]), ARGV[4], ARGV[5]

local function epoch_of_life()
  local owners = redis.call('HGETALL', OWNERS)
  for i = 1, #owners, 2 do
    local owner = cmsgpack.unpack(owners[i + 1])
    if owner[1] == owner_id then
      if owner[2] == incarnation then return owners[i] end
      end_life(owners[i])
    end
  end
  return next_number()
end

redis.call('HSETNX', META, 'incarnation', ARGV[8])
redis.call('HSETNX', META, 'last_tick_ms', whole(NOW_MS))
redis.call('HSET', META, 'ttl_ms', ARGV[3])
local epoch = epoch_of_life()
redis.call('ZADD', LEASES, whole(NOW_MS + ttl_ms), epoch)
redis.call('HSET', OWNERS, epoch, cmsgpack.pack({owner_id, incarnation, ARGV[6], ARGV[7]}))
return {'OK', epoch}
