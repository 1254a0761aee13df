-- uses: lives
-- KEYS: 4 graphs (name -> row), 5 versions (name -> version)
-- Answers the graph revision and (name, version, row) of each graph.

local answer = {'OK', whole(meta('graph_revision'))}
local rows = redis.call('HGETALL', KEYS[4])
for i = 1, #rows, 2 do
  answer[#answer + 1] = rows[i]
  answer[#answer + 1] = redis.call('HGET', KEYS[5], rows[i])
  answer[#answer + 1] = rows[i + 1]
end
return answer
