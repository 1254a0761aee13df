-- uses: lives replicas
-- ARGV: 3 revision that the caller knows, 4 incarnation of the store that it is of, 5 revision of the last row of the page
--       before, or "", 6 most items
-- Answers the replica revision, "1" for a snapshot, the last revision of the page when there is another page, or "", the
-- number of names that went, these names, and (name, lease id, state, load, drain, incarnation, row) of each row.

local since, most_items = tonumber(ARGV[3]), tonumber(ARGV[6])
local revision = meta('replica_revision')
local is_snapshot = since == 0 or ARGV[4] ~= redis.call('HGET', META, 'incarnation')
  or since < meta('trimmed_revision') or since > revision
if is_snapshot then since = 0 end

local function after(key, known, ...)
  return redis.call('ZRANGEBYSCORE', key, '(' .. known, '+inf', ...)
end

local function put_row(answer, name)
  local facts = facts_of(name)
  answer[#answer + 1] = name
  for fact = LEASE_ID, INCARNATION do answer[#answer + 1] = facts[fact] end
  answer[#answer + 1] = redis.call('HGET', ROWS, name)
end

local page_after = ARGV[5] ~= '' and ARGV[5] or whole(since)
local names = after(REVISIONS, page_after, 'LIMIT', 0, most_items)
local last = #names == most_items and whole(tonumber(redis.call('ZSCORE', REVISIONS, names[#names]))) or ''
local removed = is_snapshot and {} or after(REMOVED, whole(since))
local answer = {'OK', whole(revision), is_snapshot and '1' or '0', last, tostring(#removed)}
for _, name in ipairs(removed) do answer[#answer + 1] = name end
for _, name in ipairs(names) do put_row(answer, name) end
return answer
