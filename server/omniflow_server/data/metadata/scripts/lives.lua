-- What every script begins with: time, numbers that only grow, and who lives.
--
-- KEYS: 1 meta (hash), 2 leases (epoch -> end in ms), 3 owners (epoch -> packed id, incarnation, draining, row)
-- ARGV: 1 time in microseconds, "0" for the store's own; 2 epoch of the caller
--
-- Integers stay below 2^53, the last that a Lua number counts exactly, and leave Lua as text.

-- Servers before 7 refuse to write after the time was read, unless they are told to replicate effects.
if redis.replicate_commands then redis.replicate_commands() end

local META, LEASES, OWNERS = KEYS[1], KEYS[2], KEYS[3]
local EPOCH = ARGV[2]
local STALE_OWNER = {'STALE_OWNER'}

local function read_us()
  local given = tonumber(ARGV[1])
  if given > 0 then return given end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local NOW_US = read_us()
local NOW_MS = math.floor(NOW_US / 1000)

local function whole(number)
  return string.format('%.0f', number)
end

local function meta(field)
  return tonumber(redis.call('HGET', META, field) or '0')
end

-- Above all that this store, or one before a wipe, has given out: microseconds pass faster than numbers are taken.
local function next_number()
  local number = whole(math.max(meta('counter') + 1, NOW_US))
  redis.call('HSET', META, 'counter', number)
  return number
end

local function is_owner(epoch)
  return redis.call('ZSCORE', LEASES, epoch) ~= false
end

local function end_life(epoch)
  redis.call('ZREM', LEASES, epoch)
  redis.call('HDEL', OWNERS, epoch)
end

-- After a pause nobody's lease ends before it had its time to come back.
local function notice_pause(pause_ms)
  local last = meta('last_tick_ms')
  if last > 0 and NOW_MS - last > pause_ms then
    redis.call('HSET', META, 'resumed_ms', whole(NOW_MS), 'last_tick_ms', whole(NOW_MS))
  end
end
