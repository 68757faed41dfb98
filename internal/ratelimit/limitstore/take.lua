-- Takes tokens of the buckets KEYS: for a number of requests that each need some of every bucket,
-- or none at all, and then for later use. GCRA by the clock of the store. All arithmetic is exact: every
-- number is a whole one below 2^53.
--
-- ARGV: the node, the number of requests, and for each bucket 14 numbers and a list:
--    1 capacity    2 count      3 per        refill: count requests in per microseconds
--    4 version     5 force      of these parameters; force: it is the newest
--    6 number                   of the question, 0 if it never comes twice
--    7 outstanding              the most that all nodes together may hold
--    8 left        9 ahead      what the node holds (-1: do not ask), and wants in addition
--   10 debt       11 debtnumber what it admitted without the store
--   12 known     13 birth      what is used at least, as far as the node knows of the bucket with that birth
--                              (0: of none); it holds if the bucket has another one, or with the birth -1
--   14 amount                  what each request needs
--   15 gifts                   what is given back, reported with debtnumber as debt is: for each gift the amount,
--                              and the level and the time as they were returned when it was charged, or before
--
-- Returns: admitted, and for each bucket: state (0 done, 1 behind, 2 superseded), granted, charged of
-- the debt, used, part, version, birth (0 for none), level, lpart, time. What is used is used + part/per
-- requests. The level, level + lpart/per, is what is used and what was ever given back; the latter begins with the
-- time, so that a bucket that is made anew has a greater one.
--
-- A bucket is a hash. The field s has version, capacity, count, per, time, used, part, back, backpart (what was
-- ever given back), and what of that was given back since the bucket was last full: for each charge its
-- time, its level and lpart, and how much, in two numbers. For each
-- node there is a field n<node> with: held, time, number, admitted, granted, debtnumber,
-- charged. The field b has the birth, which is when the bucket was made: a node that knows an
-- earlier one sees that the store was emptied. Before it stand two numbers that make a script that does
-- not know the field take it for a node that holds nothing and is never forgotten.

local FIELDS = 15
local NEVER = 9000000000000000
local LIFE = 1100000       -- microseconds for which a grant counts as held: longer than a node may spend it
local FORGET = 600000000   -- microseconds after which a node that is not seen is forgotten
local RECENT = 64          -- of what was given back, so much is remembered
local floor, fmod, format = math.floor, math.fmod, string.format

local function whole(x) return format('%.0f', x) end

-- Returns floor(a*m/d) and a*m - that*d, for 0 <= a < d < 2^37 and 0 <= m < 2^39.
local function muldiv(a, m, d)
  local q, r = 0, 0
  for i = 2, 0, -1 do
    local chunk = floor(m / 8192 ^ i) % 8192
    local x = r * 8192 + a * chunk
    r = fmod(x, d)
    q = q * 8192 + (x - r) / d
  end
  return q, r
end

local function clamp(b)
  if b.used >= b.capacity then b.used, b.part = b.capacity, 0 end
end

-- Moves the bucket's time to now. A clock that went back makes the bucket emptier, up to empty.
local function elapse(b, now)
  local dt = now - b.time
  local back = dt < 0
  if back then dt = -dt end
  local r = fmod(dt, b.per)
  local n = (dt - r) / b.per * b.count -- inexact only far beyond any capacity
  local q, rest = muldiv(r, b.count, b.per)
  b.time = now
  n = n + q
  if back then
    b.used, b.part = b.used + n, b.part + rest
    if b.part >= b.per then b.used, b.part = b.used + 1, b.part - b.per end
    clamp(b)
  elseif n > b.used then
    b.used, b.part = 0, 0
  else
    b.used, b.part = b.used - n, b.part - rest
    if b.part < 0 then b.used, b.part = b.used - 1, b.part + b.per end
    if b.used < 0 then b.used, b.part = 0, 0 end
  end
end

-- Gives the bucket the parameters of a. What is used stays used, up to the capacity.
local function convert(b, a)
  if b.part > 0 and b.per ~= a.per then
    local q, rest = muldiv(b.part, a.per, b.per)
    if rest > 0 then q = q + 1 end
    if q >= a.per then b.used, q = b.used + 1, 0 end
    b.part = q
  end
  if b.backpart > 0 and b.per ~= a.per then b.back, b.backpart, b.recent = b.back + 1, 0, {} end
  b.capacity, b.count, b.per = a.capacity, a.count, a.per
end

-- Takes n requests off what is used: as much as the bucket has gained by them. Without them it could not
-- have become emptier, since time, than full, and everything used since may be new. So they are worth no more
-- than what was used then, less what was regained since, and what was given back since of earlier ones.
local function giveback(b, n, level, lpart, time)
  if b.used == 0 and b.part == 0 then b.recent = {} end
  local recent, at = b.recent, #b.recent - 4
  local worth, part = level - b.back, lpart - b.backpart
  while at > 0 and (recent[at] > time or (recent[at] == time and recent[at + 1] > level)) do
    worth, part = worth + recent[at + 3], part + recent[at + 4]
    at = at - 5
  end
  local dt = b.time - time
  if dt < 0 then return end
  local r = fmod(dt, b.per)
  local q, rest = muldiv(r, b.count, b.per)
  worth, part = worth - (dt - r) / b.per * b.count - q, part - rest
  local carry = floor(part / b.per)
  worth, part = worth + carry, part - carry * b.per
  if worth < 0 then return end
  if worth >= n then worth, part = n, 0 end
  if worth > b.used or (worth == b.used and part > b.part) then worth, part = b.used, b.part end
  b.used, b.part = b.used - worth, b.part - part
  if b.part < 0 then b.used, b.part = b.used - 1, b.part + b.per end
  b.back, b.backpart = b.back + worth, b.backpart + part
  if b.backpart >= b.per then b.back, b.backpart = b.back + 1, b.backpart - b.per end
  for j, x in ipairs({time, level, lpart, worth, part}) do table.insert(recent, at + 4 + j, x) end
  if #recent > 5 * RECENT then
    for j = 1, 5 do table.remove(recent, 1) end
  end
end

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local node, requests = 'n' .. ARGV[1], tonumber(ARGV[2])

local function arguments(i)
  local at = 2 + (i - 1) * FIELDS
  local n = {}
  for j = 1, FIELDS - 1 do n[j] = tonumber(ARGV[at + j]) end
  return {
    capacity = n[1], count = n[2], per = n[3], version = n[4], force = n[5] == 1, number = n[6],
    outstanding = n[7], left = n[8], ahead = n[9], debt = n[10], debtnumber = n[11], known = n[12], birth = n[13], amount = n[14],
    gifts = ARGV[at + FIELDS],
  }
end

local function parse(s)
  local n = {}
  for x in string.gmatch(s, '%S+') do n[#n + 1] = tonumber(x) end
  return n
end

-- Reads a bucket. Its nodes other than this one hold b.others tokens.
local function read(key, a)
  local b = {version = a.version, capacity = a.capacity, count = a.count, per = a.per, time = now, used = 0, part = 0, birth = 0, back = now, backpart = 0, recent = {},
    others = 0, forgotten = {}, me = {held = 0, time = now, number = 0, admitted = 0, granted = 0, debtnumber = 0, charged = 0}}
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    local n = parse(all[i + 1])
    if all[i] == 's' then
      b.version, b.capacity, b.count, b.per, b.time, b.used, b.part = n[1], n[2], n[3], n[4], n[5], n[6], n[7]
      b.back, b.backpart = n[8] or now, n[9] or 0
      for j = 10, #n do b.recent[j - 9] = n[j] end
    elseif all[i] == 'b' then
      b.birth = n[3]
    elseif all[i] == node then
      b.me = {held = n[1], time = n[2], number = n[3], admitted = n[4], granted = n[5], debtnumber = n[6], charged = n[7]}
    elseif now - n[2] < LIFE then
      b.others = b.others + n[1]
    elseif now - n[2] > FORGET + 2 * b.capacity * b.per / b.count then
      b.forgotten[#b.forgotten + 1] = all[i]
    end
  end
  return b
end

local asked, buckets = {}, {}
local behind, replay, superseded, admitted = false, false, false, requests
for i = 1, #KEYS do
  local a = arguments(i)
  local b = read(KEYS[i], a)
  asked[i], buckets[i] = a, b
  local same = b.capacity == a.capacity and b.count == a.count and b.per == a.per
  b.behind = not a.force and (b.version > a.version or (b.version == a.version and not same))
  if b.behind and same then b.behind = false end
  behind = behind or b.behind
  if a.number > 0 and a.number == b.me.number then replay = true end
  if a.number > 0 and a.number < b.me.number then superseded = true end
end

local out = {0}
local function answer(i, state, granted)
  local b = buckets[i]
  local level, lpart = b.used + b.back, b.part + b.backpart
  if lpart >= b.per then level, lpart = level + 1, lpart - b.per end
  if replay then level = 0 end -- what was charged before cannot be given back by what is used now
  for _, n in ipairs({state, granted, b.me.charged, b.used, b.part, b.version, b.birth, level, lpart, b.time}) do out[#out + 1] = n end
end

if behind or superseded then
  for i = 1, #KEYS do
    answer(i, superseded and 2 or (buckets[i].behind and 1 or 0), 0)
  end
  return out
end

for i = 1, #KEYS do
  local a, b = asked[i], buckets[i]
  elapse(b, now)
  convert(b, a)
  if b.version < a.version or a.force then b.version = a.version end
  local unknown = a.birth < 0 or (a.birth > 0 and a.birth ~= b.birth)
  if unknown and a.known > b.used then b.used, b.part = a.known, 0 end
  clamp(b)
  local report = (a.debt > 0 or a.gifts ~= '') and a.debtnumber > b.me.debtnumber
  if report then
    local gifts = parse(a.gifts)
    for j = 1, #gifts, 4 do giveback(b, gifts[j], gifts[j + 1], gifts[j + 2], gifts[j + 3]) end
  end
  b.free = b.capacity - b.used
  if b.part > 0 then b.free = b.free - 1 end
  if report then
    b.me.debtnumber, b.me.charged = a.debtnumber, math.min(a.debt, b.free)
    b.used, b.free = b.used + b.me.charged, b.free - b.me.charged
  end
  admitted = math.min(admitted, floor(b.free / a.amount))
end
if replay then admitted = 0 end

for i = 1, #KEYS do
  local a, b = asked[i], buckets[i]
  local granted = 0
  if not replay then
    local charged = admitted * a.amount
    b.used = b.used + charged
    if a.left >= 0 then
      granted = math.max(0, math.min(a.ahead, b.free - charged, a.outstanding - b.others - a.left))
      b.used = b.used + granted
      b.me.held = a.left + granted
    end
    if a.number > 0 then
      b.me.number, b.me.admitted, b.me.granted = a.number, admitted, granted
    end
  else
    granted = b.me.granted
    admitted = b.me.admitted
  end
  out[1] = admitted
  local s = {b.version, b.capacity, b.count, b.per, b.time, b.used, b.part, b.back, b.backpart, unpack(b.recent)}
  for j = 1, #s do s[j] = whole(s[j]) end
  local fields = {'s', table.concat(s, ' ')}
  local reports = a.debt > 0 or a.gifts ~= ''
  if a.left >= 0 or a.number > 0 or reports then
    fields[3] = node
    fields[4] = table.concat({whole(b.me.held), whole(now), whole(b.me.number), whole(b.me.admitted), whole(b.me.granted), whole(b.me.debtnumber), whole(b.me.charged)}, ' ')
  end
  if requests > 0 or a.left >= 0 or reports then -- else it is only a look
    if b.birth == 0 then
      b.birth = now
      fields[#fields + 1], fields[#fields + 2] = 'b', '0 ' .. whole(NEVER) .. ' ' .. whole(now)
    end
    redis.call('HSET', KEYS[i], unpack(fields))
    if #b.forgotten > 0 then redis.call('HDEL', KEYS[i], unpack(b.forgotten)) end
    -- When it is full again there is nothing to remember.
    local life = math.min(b.capacity * b.per / b.count / 1000, 1e12) + 60000
    redis.call('PEXPIRE', KEYS[i], whole(floor(life)))
  end
  answer(i, 0, granted)
end
return out
