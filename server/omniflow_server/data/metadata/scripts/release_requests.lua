-- uses: lives
-- KEYS: from 4 a request each
-- ARGV: from 3 the call id of each request

if not is_owner(EPOCH) then return STALE_OWNER end
for i = 4, #KEYS do
  local call_id = ARGV[i - 1]
  local mine = EPOCH .. ' ' .. #call_id .. ' ' .. call_id
  local held = redis.call('GET', KEYS[i])
  if held and string.sub(held, 1, #mine) == mine then redis.call('DEL', KEYS[i]) end
end
return {'OK'}
