-- uses: lives
-- KEYS: from 4 a request each ("<epoch> <length of the call id> <call id><digest>")
-- ARGV: 3 keep_ms, then (call id, digest) of each request
-- Answers the requests' values.

if not is_owner(EPOCH) then return STALE_OWNER end
local keep_ms, answer = ARGV[3], {'OK'}
for i = 4, #KEYS do
  local call_id, digest = ARGV[2 * i - 4], ARGV[2 * i - 3]
  local mine = EPOCH .. ' ' .. #call_id .. ' ' .. call_id
  local held = redis.call('GET', KEYS[i])
  if not held then
    held = mine .. digest
    redis.call('SET', KEYS[i], held, 'PX', keep_ms)
  elseif string.sub(held, 1, #mine) == mine then
    redis.call('PEXPIRE', KEYS[i], keep_ms)
  end
  answer[#answer + 1] = held
end
return answer
