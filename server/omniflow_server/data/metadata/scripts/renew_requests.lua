-- uses: lives
-- KEYS: from 4 a request each
-- ARGV: 3 keep_ms

if not is_owner(EPOCH) then return STALE_OWNER end
for i = 4, #KEYS do
  local held = redis.call('GET', KEYS[i])
  if held and string.match(held, '^%d+') == EPOCH then redis.call('PEXPIRE', KEYS[i], ARGV[3]) end
end
return {'OK'}
