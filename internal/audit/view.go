package audit

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/id"
)

// View is the decoded content of a block. Codec.Open decodes the columns that filters
// need; All decodes the rest. It is not safe for concurrent use.
type View struct {
	codec *Codec
	n     int
	times []int64

	calls   []call
	call    []uint16
	callers []caller
	caller  []uint16

	rest *rest
	tail reader // the encoded rest
}

type call struct {
	class  class
	method string
}

// caller is a key prefix, a key or a token, and a gateway in the encoding of the dictionary, because few of them
// are ever decoded.
type caller struct{ entry, prefix, key, gateway string }

// rest is the columns that filters do not need.
type rest struct {
	clients, paths []string // clients are encoded
	client, path   []uint16
	requests       [][16]byte // zero for identifiers in extras
	extras         map[int]*extra
}

// Open decodes the columns of a block's content that filters need. It returns an error if
// they are damaged, and uses bounded memory for any input. View.All checks the rest.
func (c *Codec) Open(content []byte) (*View, error) {
	if len(content) > maxContent {
		return nil, errDamaged
	}
	r := reader{b: content}
	if r.byte() != version {
		return nil, errDamaged
	}
	v := &View{codec: c, n: r.size(MaxRecords)}
	if v.n == 0 {
		return nil, errDamaged
	}
	d := decoder{reader: &r, codec: c, most: maxColumn}
	first := r.varint()
	v.times = make([]int64, 1, v.n)
	v.times[0] = first
	for _, delta := range d.numbers(v.n - 1) {
		last := v.times[len(v.times)-1]
		if delta > math.MaxInt64 || last > math.MaxInt64-int64(delta) {
			return nil, errDamaged
		}
		v.times = append(v.times, last+int64(delta))
	}
	var calls, callers []string
	var ok bool
	calls, v.call = d.dictionary(v.n)
	callers, v.caller = d.dictionary(v.n)
	if r.err != nil {
		return nil, r.err
	}
	for _, s := range calls {
		if s == "" || s[0] >= classes {
			return nil, errDamaged
		}
		v.calls = append(v.calls, call{class(s[0]), s[1:]})
	}
	v.callers = make([]caller, len(callers))
	for i, s := range callers {
		if v.callers[i], ok = readCaller(s); !ok {
			return nil, errDamaged
		}
	}
	v.tail = r
	return v, nil
}

func readCaller(entry string) (c caller, ok bool) {
	c.entry = entry
	if c.prefix, entry, ok = cutText(entry); !ok {
		return c, false
	}
	if c.key, entry, ok = cutText(entry); !ok {
		return c, false
	}
	c.gateway, entry, ok = cutText(entry)
	return c, ok && entry == ""
}

// Len returns the number of records.
func (v *View) Len() int { return v.n }

// decoder decodes columns. Failures are in the reader's err.
type decoder struct {
	*reader
	codec *Codec
	most  int // maximum size of a column after decompression, in bytes
}

func (d decoder) unpacked(size int) []byte {
	col := d.column(d.most)
	if d.err != nil || size >= 0 && col.size != size {
		d.fail()
		return nil
	}
	b, err := d.codec.unpack(col)
	if err != nil {
		d.fail()
	}
	return b
}

// numbers decodes n numbers.
func (d decoder) numbers(n int) []uint64 {
	width := int(d.byte())
	if width > 8 {
		d.fail()
		return nil
	}
	out := make([]uint64, n)
	for plane := range width {
		for i, b := range d.unpacked(n) {
			out[i] |= uint64(b) << (8 * plane)
		}
	}
	if d.err != nil {
		return nil
	}
	return out
}

// dictionary decodes the entries of a dictionary, and the entry number of each of n
// records.
func (d decoder) dictionary(n int) (entries []string, of []uint16) {
	count := d.size(n)
	if count == 0 {
		d.fail()
		return nil, nil
	}
	lengths := reader{b: d.unpacked(-1)}
	text := string(d.unpacked(-1))
	entries = make([]string, count)
	for i := range entries {
		size := lengths.size(len(text))
		if lengths.err != nil {
			d.fail()
			return nil, nil
		}
		entries[i], text = text[:size], text[size:]
	}
	if lengths.end() != nil || text != "" {
		d.fail()
		return nil, nil
	}
	of = make([]uint16, n)
	for plane := range planesOf(count) {
		for i, b := range d.unpacked(n) {
			of[i] |= uint16(b) << (8 * plane)
		}
	}
	for _, e := range of {
		if int(e) >= count {
			d.fail()
			return nil, nil
		}
	}
	return entries, of
}

// All decodes the remaining columns. It returns an error if they are damaged.
func (v *View) All() error {
	if v.rest != nil {
		return nil
	}
	in := v.tail
	d := decoder{reader: &in, codec: v.codec, most: maxColumn}
	x := &rest{}
	x.clients, x.client = d.dictionary(v.n)
	x.paths, x.path = d.dictionary(v.n)
	for _, s := range x.clients {
		text := reader{b: []byte(s)}
		if text.skipText(); text.end() != nil {
			return errDamaged
		}
	}
	width := d.byte()
	planes := make([]column, 0, 8)
	for range min(width, 9) {
		planes = append(planes, d.column(maxColumn))
	}
	random := d.unpacked(-1)
	if width > 8 || len(random)%10 != 0 || len(random)/10 > v.n {
		return errDamaged
	}
	offsets, err := v.offsets(planes, len(random)/10)
	if err != nil {
		return err
	}
	d.most = maxContent
	if err := x.readExtras(d.unpacked(-1), v.n); err != nil {
		return err
	}
	if err := in.end(); err != nil {
		return err
	}
	if err := x.readRequests(v.times, offsets, random); err != nil {
		return err
	}
	v.rest = x
	return nil
}

// offsets decodes the milliseconds of the request identifiers, relative to the times.
func (v *View) offsets(planes []column, n int) ([]int64, error) {
	out := make([]uint64, n)
	for plane, col := range planes {
		if col.size != n {
			return nil, errDamaged
		}
		b, err := v.codec.unpack(col)
		if err != nil {
			return nil, err
		}
		for i, c := range b {
			out[i] |= uint64(c) << (8 * plane)
		}
	}
	signed := make([]int64, n)
	for i, u := range out {
		signed[i] = unzigzag(u)
	}
	return signed, nil
}

// readExtras decodes the extras of n records.
func (x *rest) readExtras(b []byte, n int) error {
	r := reader{b: b}
	x.extras = map[int]*extra{}
	x.requests = make([][16]byte, n)
	for at := -1; len(r.b) > 0; {
		at += r.size(n)
		more := &extra{seq: r.varint()}
		plain := r.byte()
		for _, s := range [...]*string{&more.request, &more.action, &more.target, &more.actor, &more.diff} {
			*s = string(r.take(r.size(len(r.b))))
		}
		if r.err != nil || at < 0 || at >= n || x.extras[at] != nil || plain > 1 || plain == 1 && more.request != "" || more.diff != "" && !json.Valid([]byte(more.diff)) {
			return errDamaged
		}
		x.extras[at] = more
		if plain == 0 {
			x.requests[at][0] = 1 // a mark: it is not a UUIDv7
		}
	}
	return r.err
}

// readRequests reassembles the request identifiers. It skips records that are marked in
// requests, whose identifiers are texts in extras.
func (x *rest) readRequests(times, offsets []int64, random []byte) error {
	n := 0
	for i := range x.requests {
		if x.requests[i] != [16]byte{} {
			x.requests[i] = [16]byte{}
			continue
		}
		if n == len(offsets) {
			return errDamaged
		}
		b := random[10*n : 10*n+10]
		ms := millis(times[i]) + offsets[n]
		low := binary.BigEndian.Uint64(b[2:])
		if ms < 0 || ms >= 1<<48 || low>>62 != 0 || b[1]&0xf != 0 {
			return errDamaged
		}
		u := &x.requests[i]
		binary.BigEndian.PutUint64(u[:8], uint64(ms)<<16|7<<12|uint64(binary.BigEndian.Uint16(b))>>4)
		binary.BigEndian.PutUint64(u[8:], low|2<<62)
		n++
	}
	if n != len(offsets) {
		return errDamaged
	}
	return nil
}

// Record returns record i without its account and cursor. All must have succeeded before.
func (v *View) Record(i int) (Record, error) {
	x := v.rest
	c, who := v.calls[v.call[i]], v.callers[v.caller[i]]
	r := Record{
		Time: time.UnixMicro(v.times[i]).UTC(), Kind: c.class.kind(), Outcome: c.class.outcome(), Method: c.method,
		KeyPrefix: readText(who.prefix, ""), GatewayID: readText(who.gateway, id.Gateway),
		ClientIP: readText(x.clients[x.client[i]], ""), Path: x.paths[x.path[i]],
	}
	r.KeyID, r.IssuerID, r.Subject, r.Token = readCredential(who.key)
	more := x.extras[i]
	if x.requests[i] != [16]byte{} {
		r.RequestID = id.Format(id.Request, x.requests[i])
	} else if more != nil {
		r.RequestID = more.request
	}
	if more == nil {
		return r, nil
	}
	if r.Seq = more.seq; r.Kind == Authentication && more.seq < 0 {
		r.Seq, r.Count = 0, -more.seq
	}
	r.Action, r.Target = Action(more.action), more.target
	r.SetActorText(more.actor)
	if more.diff != "" {
		var err error
		if r.Diff, err = DecodeDiff([]byte(more.diff)); err != nil {
			return Record{}, err
		}
	}
	return r, nil
}

// AddView adds all records of v.
func (t *Table) AddView(v *View) error {
	if err := v.All(); err != nil {
		return err
	}
	x := v.rest
	var numbers [4][]uint32
	for _, c := range v.calls {
		numbers[0] = append(numbers[0], t.internCall(c.class, c.method))
	}
	for i := range v.callers {
		numbers[1] = append(numbers[1], t.callers.adopt(v.callers[i].entry, &t.texts))
	}
	for _, s := range x.clients {
		numbers[2] = append(numbers[2], t.clients.adopt(s, &t.texts))
	}
	for _, s := range x.paths {
		numbers[3] = append(numbers[3], t.paths.adopt(s, &t.texts))
	}
	t.rows = slices.Grow(t.rows, v.n)
	for i := range v.n {
		r := row{
			time: v.times[i], request: x.requests[i], entry: [4]uint32{numbers[0][v.call[i]], numbers[1][v.caller[i]],
				numbers[2][x.client[i]], numbers[3][x.path[i]]},
		}
		if more := x.extras[i]; more != nil {
			r.extra = t.addExtra(*more)
		}
		t.append(&r)
	}
	return nil
}
