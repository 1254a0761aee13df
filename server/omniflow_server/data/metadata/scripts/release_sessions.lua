-- uses: lives
-- KEYS: from 4 a session each

if not is_owner(EPOCH) then return STALE_OWNER end
for i = 4, #KEYS do
  local held = redis.call('GET', KEYS[i])
  if held and string.match(held, '^%d+') == EPOCH then redis.call('DEL', KEYS[i]) end
end
return {'OK'}
