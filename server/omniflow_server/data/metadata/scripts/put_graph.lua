-- uses: lives
-- KEYS: 4 graphs (name -> row), 5 versions (name -> version)
-- ARGV: 3 name, 4 version, 5 row
-- Answers the current version when this one does not follow it.

if not is_owner(EPOCH) then return STALE_OWNER end
local name, version, row = ARGV[3], tonumber(ARGV[4]), ARGV[5]
local current = tonumber(redis.call('HGET', KEYS[5], name) or '0')
if current == version and redis.call('HGET', KEYS[4], name) == row then return {'OK'} end
if version ~= current + 1 then return {'CONFLICT', whole(current)} end
redis.call('HSET', KEYS[4], name, row)
redis.call('HSET', KEYS[5], name, ARGV[4])
redis.call('HSET', META, 'graph_revision', next_number())
return {'OK'}
