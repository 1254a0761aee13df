-- uses: lives
-- KEYS: from 4 a session each (its owner's epoch and its fence)
-- ARGV: 3 keep_ms, 4 pause_ms
-- Answers the sessions' values, joined.

local keep_ms = ARGV[3]

-- Ends the life of an owner whose lease has run out: who loses a session must know that it lost everything.
local function lives(epoch)
  local lease_end_ms = redis.call('ZSCORE', LEASES, epoch)
  if not lease_end_ms then return false end
  if tonumber(lease_end_ms) > NOW_MS or meta('resumed_ms') + meta('ttl_ms') > NOW_MS then return true end
  end_life(epoch)
  return false
end

local function claim(key)
  local held = redis.call('GET', key)
  local owner = held and string.match(held, '^%d+')
  if owner == EPOCH then
    redis.call('PEXPIRE', key, keep_ms)
  elseif not owner or not lives(owner) then
    held = EPOCH .. ' ' .. next_number()
    redis.call('SET', key, held, 'PX', keep_ms)
  end
  return held
end

if not is_owner(EPOCH) then return STALE_OWNER end
notice_pause(tonumber(ARGV[4]))
local held = {}
for i = 4, #KEYS do held[i - 3] = claim(KEYS[i]) end
return {'OK', table.concat(held, ' ')}
