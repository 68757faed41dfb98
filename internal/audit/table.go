package audit

import (
	"bytes"
	"cmp"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/id"
)

// MaxPath is the maximum length of a stored path, in bytes. A longer path is cut and ends with "…".
const MaxPath = 2048

// maxMethod is the maximum length of a stored method, in bytes. A longer method, which no route and no call has,
// is cut.
const maxMethod = 64

// Event is an authentication of the data plane, in the form of the access record, which
// needs no formatting.
type Event struct {
	Time         int64 // microseconds since 1970
	Request      [16]byte
	Gateway, Key [16]byte // zero for none
	Client       [16]byte // in the form of netip.Addr.As16; zero for none
	Prefix       [10]byte // padded with zeros
	// Token, IssuerID and Subject say with whose token the request was made, as those of Record.
	Token    bool
	IssuerID string
	Subject  string
	Outcome  Outcome
	Method   string
	Path     string
}

// Table holds records in memory, with dictionaries for their texts. The zero value is
// empty. It is not safe for concurrent use.
type Table struct {
	calls   dictionary // a class and a method
	callers dictionary // a prefix, a key or a token, a gateway
	clients dictionary // an address
	paths   dictionary

	// Caches of AddEvent. The requests of a connection often come together, so the
	// last event is checked first.
	knownCalls   []callKey
	knownCallers map[callerKey]uint32
	knownClients map[[16]byte]uint32
	last         lastEvent
	room         []byte

	rows   []row
	spare  []row // memory for Sort
	extras []extra
	texts  int // bytes in the dictionaries and extras
	counts int // number of records with a Count

	encoder *encoder
}

type callKey struct {
	class  class
	method string
	number uint32
}

type lastEvent struct {
	any                        bool
	caller                     callerKey
	client                     [16]byte
	callerNumber, clientNumber uint32
}

// maxKnownCalls bounds the cached calls, which are searched linearly.
const maxKnownCalls = 16

type callerKey struct {
	prefix          [10]byte
	key, gateway    [16]byte
	token           bool
	issuer, subject string
}

// callerKey returns who made the request. Its texts are the event's.
func (e *Event) callerKey() callerKey {
	return callerKey{e.Prefix, e.Key, e.Gateway, e.Token, e.IssuerID, e.Subject}
}

// row is a record. Its texts are entry numbers of the table's dictionaries.
type row struct {
	time    int64
	request [16]byte  // zero if the identifier is in extra
	entry   [4]uint32 // entry number in each dictionary, in the order below
	extra   uint32    // cursor in extras, from 1; 0 for none
}

// The columns of row.entry.
const (
	callColumn = iota
	callerColumn
	clientColumn
	pathColumn
)

// extra is the fields that few records have.
type extra struct {
	seq                            int64 // or, if it is negative, minus the Count of an authentication
	request, action, target, actor string
	diff                           string // JSON
}

// size returns the approximate size of x in a block, in bytes.
func (x *extra) size() int {
	return len(x.request) + len(x.action) + len(x.target) + len(x.actor) + len(x.diff) + 8
}

// dictionary numbers texts in the order in which they were added.
type dictionary struct {
	entries []string
	index   map[string]uint32
}

// find returns the entry number of b, and whether it was added.
func (d *dictionary) find(b []byte) (n uint32, fresh bool) {
	if n, ok := d.index[string(b)]; ok {
		return n, false
	}
	return d.add(string(b)), true
}

// adopt returns the entry number of s. If s is new, it is kept without a copy, and its
// length is added to texts.
func (d *dictionary) adopt(s string, texts *int) uint32 {
	if n, ok := d.index[s]; ok {
		return n
	}
	*texts += len(s)
	return d.add(s)
}

func (d *dictionary) add(s string) uint32 {
	if d.index == nil {
		d.index = map[string]uint32{}
	}
	n := uint32(len(d.entries))
	d.entries = append(d.entries, s)
	d.index[s] = n
	return n
}

func (d *dictionary) reset() {
	clear(d.entries)
	d.entries = d.entries[:0]
	clear(d.index)
}

// Len returns the number of records.
func (t *Table) Len() int { return len(t.rows) }

// Texts returns the approximate size of the records' texts, in bytes.
func (t *Table) Texts() int { return t.texts }

// Reset removes all records and keeps the memory.
func (t *Table) Reset() {
	t.calls.reset()
	t.callers.reset()
	t.clients.reset()
	t.paths.reset()
	t.knownCalls, t.last = t.knownCalls[:0], lastEvent{}
	clear(t.knownCallers)
	clear(t.knownClients)
	clear(t.extras)
	t.rows, t.extras, t.texts, t.counts = t.rows[:0], t.extras[:0], 0, 0
}

// intern returns the entry number of t.room in d, and counts its size if it is new.
func (t *Table) intern(d *dictionary) uint32 {
	n, fresh := d.find(t.room)
	if fresh {
		t.texts += len(t.room)
	}
	return n
}

// AddEvent adds an authentication of the data plane.
func (t *Table) AddEvent(e *Event) { t.addEvent(e, 0) }

// addEvent adds an authentication with a Count.
func (t *Table) addEvent(e *Event, count int64) {
	if t.knownCallers == nil {
		t.knownCallers, t.knownClients = map[callerKey]uint32{}, map[[16]byte]uint32{}
	}
	r := row{time: e.Time, request: e.Request}
	r.entry[callColumn] = t.callOf(e)
	caller, last := e.callerKey(), &t.last
	if !last.any || last.caller != caller {
		last.caller, last.callerNumber = caller, t.callerOf(&caller)
	}
	if !last.any || last.client != e.Client {
		last.client, last.clientNumber = e.Client, t.clientOf(e.Client)
	}
	last.any = true
	r.entry[callerColumn], r.entry[clientColumn] = last.callerNumber, last.clientNumber
	x := extra{seq: -count}
	if !isV7(&r.request) {
		if r.request != [16]byte{} {
			x.request = id.Format(id.Request, r.request)
		}
		r.request, r.extra = [16]byte{}, t.addExtra(x)
	} else if count > 0 {
		r.extra = t.addExtra(x)
	}
	r.entry[pathColumn] = t.internPath(e.Path)
	t.append(&r)
}

// append appends a record.
func (t *Table) append(r *row) {
	if t.countOf(r) > 0 {
		t.counts++
	}
	t.rows = append(t.rows, *r)
}

func (t *Table) callOf(e *Event) uint32 {
	c, _ := classOf(Authentication, e.Outcome)
	for i := range t.knownCalls {
		if k := &t.knownCalls[i]; k.class == c && k.method == e.Method {
			return k.number
		}
	}
	n := t.internCall(c, e.Method)
	if len(t.knownCalls) < maxKnownCalls {
		t.knownCalls = append(t.knownCalls, callKey{c, strings.Clone(e.Method), n})
	}
	return n
}

func (t *Table) callerOf(k *callerKey) uint32 {
	if n, ok := t.knownCallers[*k]; ok {
		return n
	}
	t.room = appendCaller(t.room[:0], k)
	n := t.intern(&t.callers)
	t.knownCallers[*k] = n
	return n
}

// appendCaller appends the entry of a caller.
func appendCaller(b []byte, k *callerKey) []byte {
	b = appendText(b, string(bytes.TrimRight(k.prefix[:], "\x00")))
	if k.token {
		b = appendToken(b, k.issuer, k.subject)
	} else {
		b = appendIDBytes(b, k.key)
	}
	return appendIDBytes(b, k.gateway)
}

// appendCaller appends the entry of the caller of a record.
func (r *Record) appendCaller(b []byte) []byte {
	b = appendText(b, r.KeyPrefix)
	if r.Token {
		b = appendToken(b, r.IssuerID, r.Subject)
	} else {
		b = appendID(b, id.Key, r.KeyID)
	}
	return appendID(b, id.Gateway, r.GatewayID)
}

func (t *Table) clientOf(client [16]byte) uint32 {
	if n, ok := t.knownClients[client]; ok {
		return n
	}
	t.room = append(t.room[:0], absent)
	if client != [16]byte{} {
		t.room = appendAddr(t.room[:0], netip.AddrFrom16(client).Unmap())
	}
	n := t.intern(&t.clients)
	t.knownClients[client] = n
	return n
}

func (t *Table) internCall(c class, method string) uint32 {
	t.room = append(append(t.room[:0], byte(c)), method[:min(len(method), maxMethod)]...)
	return t.intern(&t.calls)
}

func (t *Table) internPath(path string) uint32 {
	t.room = appendPath(t.room[:0], path)
	return t.intern(&t.paths)
}

// appendPath appends a path. It redacts API keys, which some clients put into the path, and cuts a
// path that is too long, between two characters.
func appendPath(b []byte, path string) []byte {
	path = apikey.Redact(path)
	if len(path) <= MaxPath {
		return append(b, path...)
	}
	const mark = "…"
	cut := MaxPath - len(mark)
	for back := 0; back < 3 && path[cut]&0xc0 == 0x80; back++ {
		cut--
	}
	return append(append(b, path[:cut]...), mark...)
}

func (t *Table) addExtra(x extra) uint32 {
	t.extras = append(t.extras, x)
	t.texts += x.size()
	return uint32(len(t.extras))
}

// Add adds a record without its AccountID and Cursor. It returns an error if the kind or
// outcome is unknown, or if the diff cannot be encoded.
func (t *Table) Add(r *Record) error {
	c, ok := classOf(r.Kind, r.Outcome)
	if !ok {
		return fmt.Errorf("audit record has an unknown kind %q or outcome %q", r.Kind, r.Outcome)
	}
	x := extra{seq: r.Seq, action: string(r.Action), target: r.Target, actor: r.ActorText()}
	if r.Kind == Authentication && r.Count > 0 {
		x.seq = -r.Count
	}
	if r.Diff != nil {
		diff, err := EncodeDiff(r.Diff)
		if err != nil {
			return err
		}
		x.diff = string(diff)
	}
	to := row{time: r.Time.UnixMicro()}
	if to.request, ok = id.Parse(id.Request, r.RequestID); !ok || !isV7(&to.request) {
		to.request, x.request = [16]byte{}, r.RequestID
	}
	if x != (extra{}) || to.request == [16]byte{} {
		to.extra = t.addExtra(x)
	}
	to.entry[callColumn] = t.internCall(c, r.Method)
	t.room = r.appendCaller(t.room[:0])
	to.entry[callerColumn] = t.intern(&t.callers)
	t.room = appendAddress(t.room[:0], r.ClientIP)
	to.entry[clientColumn] = t.intern(&t.clients)
	to.entry[pathColumn] = t.internPath(r.Path)
	t.append(&to)
	return nil
}

// isV7 reports whether u is a UUIDv7, as all identifiers of Keygate are.
func isV7(u *[16]byte) bool { return u[6]>>4 == 7 && u[8]>>6 == 2 }

// Span returns the earliest and the latest time of the records, or zero times if there are
// none.
func (t *Table) Span() (first, last time.Time) {
	if len(t.rows) == 0 {
		return first, last
	}
	least, most := t.rows[0].time, t.rows[0].time
	for i := range t.rows {
		least, most = min(least, t.rows[i].time), max(most, t.rows[i].time)
	}
	return time.UnixMicro(least).UTC(), time.UnixMicro(most).UTC()
}

// Sort sorts the records in the order of the log: by time, then by Seq, which is 0 for
// authentications, then by request.
func (t *Table) Sort() {
	if slices.IsSortedFunc(t.rows, t.compare) {
		return
	}
	if !t.sortByTime() {
		slices.SortStableFunc(t.rows, t.compare)
		return
	}
	for from := 0; from < len(t.rows); {
		to := from + 1
		for to < len(t.rows) && t.rows[to].time == t.rows[from].time {
			to++
		}
		if to-from > 1 {
			slices.SortStableFunc(t.rows[from:to], t.compare)
		}
		from = to
	}
}

func (t *Table) compare(a, b row) int {
	if a.time != b.time {
		return cmp.Compare(a.time, b.time)
	}
	ka, kb := t.key(&a), t.key(&b)
	return ka.compare(&kb)
}

// sortByTime sorts by time only. It sorts numbers that consist of a time and an index,
// which is several times as fast as sorting rows. It returns false if the times are too
// far apart for that.
func (t *Table) sortByTime() bool {
	first, last := t.Span()
	shift := bits.Len(uint(len(t.rows) - 1))
	base, span := first.UnixMicro(), uint64(last.UnixMicro()-first.UnixMicro())
	if bits.Len64(span)+shift > 64 {
		return false
	}
	order := make([]uint64, len(t.rows))
	for i := range t.rows {
		order[i] = uint64(t.rows[i].time-base)<<shift | uint64(i)
	}
	slices.Sort(order)
	t.spare = slices.Grow(t.spare[:0], len(t.rows))
	for _, o := range order {
		t.spare = append(t.spare, t.rows[o&(1<<shift-1)])
	}
	t.rows, t.spare = t.spare, t.rows[:0]
	return true
}

// key is the sort key of a record in the log.
type key struct {
	time, seq int64
	request   string
}

func (k *key) compare(o *key) int {
	return cmp.Or(cmp.Compare(k.time, o.time), cmp.Compare(k.seq, o.seq), cmp.Compare(k.request, o.request))
}

func (t *Table) key(r *row) key {
	k := key{time: r.time}
	if r.extra != 0 {
		k.seq, k.request = t.extras[r.extra-1].seq, t.extras[r.extra-1].request
		if t.countOf(r) > 0 {
			k.seq = 0
		}
	}
	if r.request != [16]byte{} {
		k.request = id.Format(id.Request, r.request)
	}
	return k
}
