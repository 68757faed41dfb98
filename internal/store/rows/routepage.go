package rows

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/gateway"
)

// A route table is stored in pages of some hundred routes each, sorted by identifier: a table of
// 100,000 routes is about 400 rows and not 100,000, and a change of one route rewrites one page.
const (
	pageRoutes = 256      // of a page of a new table
	pageBytes  = 64 << 10 // before compression; a page has at least one route
	// splitRoutes and splitBytes are the sizes at which a page that grew by single routes is split.
	splitRoutes = 2 * pageRoutes
	splitBytes  = 2 * pageBytes
)

// The first byte of a page is the form of what follows. A page has the lowest form that has what its routes have, so that
// earlier versions of Keygate can read it as long as possible.
const (
	plainForm       = 1
	costForm        = 2 // routes may have costs
	concurrencyForm = 3 // routes may have bounds of requests in flight
	upstreamForm    = 4 // routes may name upstreams, and have splits
	handlingForm    = 5 // behind all routes, the page has the handlings of those that have one
	newestForm      = handlingForm
)

// The flags of a route in a page.
const (
	limitByAPI = 1 << iota
	hasCreated
	hasCost
	costByAPI
	hasConcurrency
	concurrencyByAPI
	hasUpstream
	hasSplit

	plainFlags       = limitByAPI | hasCreated
	costFlags        = hasCost | costByAPI
	concurrencyFlags = hasConcurrency | concurrencyByAPI
	upstreamFlags    = hasUpstream | hasSplit
)

// PageCodec encodes pages of routes. It is safe for concurrent use.
type PageCodec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

// NewPageCodec returns a codec.
func NewPageCodec() (*PageCodec, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(128<<10), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, fmt.Errorf("create the encoder of route pages: %w", err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(64<<20), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, fmt.Errorf("create the decoder of route pages: %w", err)
	}
	return &PageCodec{enc, dec}, nil
}

// RoutePage is a page as it is
type RoutePage struct {
	First   string // identifier of its first route
	Routes  int
	Content []byte
}

// Pages encodes routes, in the given order, as the pages of a new table.
func (c *PageCodec) Pages(routes []gateway.Route) []RoutePage {
	return c.pages(routes, pageRoutes, pageBytes)
}

// Split encodes the routes of a page that was changed, as several pages if it has become large.
func (c *PageCodec) Split(routes []gateway.Route) []RoutePage {
	pages := c.pages(routes, splitRoutes, splitBytes)
	if len(pages) > 1 {
		pages = c.Pages(routes)
	}
	return pages
}

// pages encodes routes in the given order as pages of at most maxRoutes routes and about maxBytes
// bytes each.
func (c *PageCodec) pages(routes []gateway.Route, maxRoutes, maxBytes int) []RoutePage {
	var all []RoutePage
	var w pageWriter
	for from := 0; from < len(routes); {
		w.reset()
		to := from
		for to < len(routes) && to-from < maxRoutes && len(w.raw)+len(w.rest) < maxBytes {
			w.add(to-from, &routes[to])
			to++
		}
		if w.form == handlingForm {
			w.raw = append(binary.AppendUvarint(w.raw, uint64(w.handled)), w.rest...)
		}
		head := binary.AppendUvarint([]byte{w.form}, uint64(to-from))
		all = append(all, RoutePage{routes[from].ID, to - from, c.enc.EncodeAll(w.raw, head)})
		from = to
	}
	return all
}

// pageWriter writes the routes of a page. The text of a cost or a split is written for the first route that has it; the others
// refer to it.
type pageWriter struct {
	form   byte
	raw    []byte
	costs  pageTexts[cost.Rule]
	splits pageTexts[gateway.SplitEntry]

	rest      []byte // of handled routes: the index of each, and its handling
	handled   int
	handlings pageTexts[gateway.Handling]
}

// pageTexts are the texts of a page that several routes may have: costs, splits or handlings. T is the type of their items.
type pageTexts[T any] struct {
	texts map[string]uint64 // the number of each text, from 1
	known map[*T]uint64     // as texts, for lists that share memory, by their first item
}

func (t *pageTexts[T]) reset() {
	clear(t.texts)
	clear(t.known)
}

// append appends the number of a list's text in the page, or 0 and the text. of is the first item; nil if there is none.
func (t *pageTexts[T]) append(b []byte, of *T, encode func() []byte) []byte {
	if n, known := t.known[of]; known && of != nil {
		return binary.AppendUvarint(b, n)
	}
	text := string(encode())
	if t.texts == nil {
		t.texts, t.known = map[string]uint64{}, map[*T]uint64{}
	}
	n, known := t.texts[text]
	if !known {
		n = uint64(len(t.texts) + 1)
		t.texts[text] = n
		b = binary.AppendUvarint(append(b, 0), uint64(len(text)))
		b = append(b, text...)
	} else {
		b = binary.AppendUvarint(b, n)
	}
	t.known[of] = n
	return b
}

func (w *pageWriter) reset() {
	w.form, w.raw = plainForm, w.raw[:0]
	w.costs.reset()
	w.splits.reset()
	w.rest, w.handled = w.rest[:0], 0
	w.handlings.reset()
}

// add adds route i of the page.
func (w *pageWriter) add(i int, r *gateway.Route) {
	b := w.raw
	l := &r.RateLimit
	flags := byte(0)
	if r.LimitByAPI {
		flags |= limitByAPI
	}
	if !r.CreatedAt.IsZero() {
		flags |= hasCreated
	}
	if len(r.Cost) > 0 {
		flags |= hasCost
	}
	if r.CostByAPI {
		flags |= costByAPI
	}
	if !r.Concurrency.IsZero() {
		flags |= hasConcurrency
	}
	if r.ConcurrencyByAPI {
		flags |= concurrencyByAPI
	}
	if r.Upstream != "" {
		flags |= hasUpstream
	}
	if r.Split != nil {
		flags |= hasSplit
	}
	switch {
	case flags&upstreamFlags != 0:
		w.form = max(w.form, upstreamForm)
	case flags&concurrencyFlags != 0:
		w.form = max(w.form, concurrencyForm)
	case flags&costFlags != 0:
		w.form = max(w.form, costForm)
	}
	b = append(b, flags)
	for _, s := range [...]string{
		r.ID, r.Path, strings.Join(r.Methods, " "), l.Sustained.String(), l.Burst.String(), l.Daily.String(), l.Per,
		string(r.Auth), string(r.Source),
	} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	if flags&hasCreated != 0 {
		b = binary.AppendVarint(b, r.CreatedAt.UnixMicro())
	}
	b = binary.AppendVarint(b, r.Version)
	if flags&hasCost != 0 {
		b = w.costs.append(b, &r.Cost[0], func() []byte { return r.Cost.AppendJSON(nil) })
	}
	if flags&hasConcurrency != 0 {
		b = binary.AppendVarint(b, r.Concurrency.Max)
		b = binary.AppendUvarint(b, uint64(len(r.Concurrency.Per)))
		b = append(b, r.Concurrency.Per...)
	}
	if flags&hasUpstream != 0 {
		b = binary.AppendUvarint(b, uint64(len(r.Upstream)))
		b = append(b, r.Upstream...)
	}
	if flags&hasSplit != 0 {
		var first *gateway.SplitEntry
		if len(r.Split) > 0 {
			first = &r.Split[0]
		}
		b = w.splits.append(b, first, func() []byte { return r.Split.AppendJSON(nil) })
	}
	w.raw = b
	if r.Handling != nil {
		w.form = handlingForm
		w.handled++
		w.rest = w.handlings.append(binary.AppendUvarint(w.rest, uint64(i)), r.Handling, func() []byte { return r.Handling.AppendJSON(nil) })
	}
}

var errDamagedPage = errors.New("a page of routes is damaged")

// Costs are the costs of routes that were read, by their text, so that routes with the same cost share it.
type Costs map[string]cost.Rules

// read returns the cost with a text.
func (c Costs) read(text string) (cost.Rules, error) {
	rules, known := c[text]
	if !known {
		if err := rules.UnmarshalJSON([]byte(text)); err != nil {
			return nil, fmt.Errorf("%w: a cost: %w", errDamagedPage, err)
		}
		c[strings.Clone(text)] = rules
	}
	return rules, nil
}

// Routes decodes a page of the gateway and appends its routes to list. They share their costs with those of earlier pages
// for which the same costs were given.
func (c *PageCodec) Routes(list []gateway.Route, gatewayID string, content []byte, costs Costs) ([]gateway.Route, error) {
	switch {
	case len(content) == 0 || content[0] == 0:
		return list, errDamagedPage
	case content[0] > newestForm:
		return list, fmt.Errorf("a page of routes has form %d, and this version reads forms up to %d: a newer version of Keygate has written it, so upgrade this node", content[0], newestForm)
	}
	n, size := binary.Uvarint(content[1:])
	if size <= 0 {
		return list, errDamagedPage
	}
	raw, err := c.dec.DecodeAll(content[1+size:], nil)
	if err != nil {
		return list, fmt.Errorf("%w: %w", errDamagedPage, err)
	}
	d := pageReader{form: content[0], rest: string(raw), methods: map[string][]string{}, costs: costs}
	from := len(list)
	for range n {
		list = append(list, d.route(gatewayID))
		if d.err != nil {
			return list, d.err
		}
	}
	if d.form == handlingForm {
		if d.readHandlings(list[from:]); d.err != nil {
			return list, d.err
		}
	}
	if d.rest != "" {
		return list, errDamagedPage
	}
	return list, nil
}

// pageReader reads the routes of a page. Their strings share its memory.
type pageReader struct {
	form    byte
	rest    string
	methods map[string][]string // by their text: most routes have the same few
	costs   Costs
	own     []cost.Rules    // of the page, in the order of their texts
	splits  []gateway.Split // likewise
	err     error
}

// flagsOf returns the flags that routes of a page with the form may have.
func flagsOf(form byte) byte {
	switch form {
	case plainForm:
		return plainFlags
	case costForm:
		return plainFlags | costFlags
	case concurrencyForm:
		return plainFlags | costFlags | concurrencyFlags
	}
	return plainFlags | costFlags | concurrencyFlags | upstreamFlags
}

func (d *pageReader) route(gatewayID string) (r gateway.Route) {
	if d.rest == "" {
		d.err = errDamagedPage
		return r
	}
	flags := d.rest[0]
	if flags&^flagsOf(d.form) != 0 {
		d.err = errDamagedPage
		return r
	}
	d.rest = d.rest[1:]
	r.GatewayID, r.LimitByAPI, r.CostByAPI, r.ConcurrencyByAPI = gatewayID, flags&limitByAPI != 0, flags&costByAPI != 0, flags&concurrencyByAPI != 0
	r.ID, r.Path = d.text(), d.text()
	methods := d.text()
	list, known := d.methods[methods]
	if !known {
		list = strings.Fields(methods)
		d.methods[methods] = list
	}
	r.Methods = list[:len(list):len(list)]
	sustained, burst, daily, per := d.text(), d.text(), d.text(), d.text()
	r.Auth, r.Source = gateway.Auth(d.text()), gateway.Source(d.text())
	if flags&hasCreated != 0 {
		r.CreatedAt = time.UnixMicro(d.number()).UTC()
	}
	r.Version = d.number()
	if flags&hasCost != 0 {
		r.Cost = d.cost()
	}
	if flags&hasConcurrency != 0 {
		r.Concurrency.Max, r.Concurrency.Per = d.number(), d.text()
		if d.err == nil && r.Concurrency.IsZero() {
			d.err = errDamagedPage // it would have no flag
		}
	}
	if flags&hasUpstream != 0 {
		if r.Upstream = d.text(); d.err == nil && r.Upstream == "" {
			d.err = errDamagedPage // likewise
		}
	}
	if flags&hasSplit != 0 {
		r.Split = d.split()
	}
	if d.err == nil && sustained+burst+daily+per != "" {
		r.RateLimit, d.err = rateLimit(sustained, burst, daily, per)
	}
	return r
}

func (d *pageReader) cost() cost.Rules {
	n, size := uvarint(d.rest)
	if size <= 0 || n > uint64(len(d.own)) {
		d.err, d.rest = errDamagedPage, ""
		return nil
	}
	d.rest = d.rest[size:]
	if n > 0 {
		return d.own[n-1]
	}
	text := d.text()
	if d.err != nil {
		return nil
	}
	rules, err := d.costs.read(text)
	if err == nil && len(rules) == 0 {
		err = errDamagedPage // it would have no flag
	}
	if err != nil {
		d.err, d.rest = err, ""
		return nil
	}
	d.own = append(d.own, rules)
	return rules
}

func (d *pageReader) split() gateway.Split {
	n, size := uvarint(d.rest)
	if size <= 0 || n > uint64(len(d.splits)) {
		d.err, d.rest = errDamagedPage, ""
		return nil
	}
	d.rest = d.rest[size:]
	if n > 0 {
		return d.splits[n-1]
	}
	text := d.text()
	if d.err != nil {
		return nil
	}
	var s gateway.Split
	if err := json.Unmarshal([]byte(text), &s); err != nil || s == nil { // nil would have no flag
		d.err, d.rest = fmt.Errorf("%w: a split: %w", errDamagedPage, err), ""
		return nil
	}
	d.splits = append(d.splits, s)
	return s
}

// readHandlings reads the handlings of a page with the routes.
func (d *pageReader) readHandlings(routes []gateway.Route) {
	var known []*gateway.Handling
	for left := d.count(uint64(len(routes))); left > 0 && d.err == nil; left-- {
		i, n := d.count(uint64(len(routes)-1)), d.count(uint64(len(known)))
		if d.err != nil {
			return
		}
		if n > 0 {
			routes[i].Handling = known[n-1]
			continue
		}
		h := &gateway.Handling{}
		if err := json.Unmarshal([]byte(d.text()), h); d.err == nil && (err != nil || h.Stored() == nil) {
			d.err, d.rest = fmt.Errorf("%w: what a route does with its requests: %w", errDamagedPage, err), ""
			return
		}
		known = append(known, h)
		routes[i].Handling = h
	}
}

// count reads a number of at most most.
func (d *pageReader) count(most uint64) uint64 {
	n, size := uvarint(d.rest)
	if size <= 0 || n > most {
		d.err, d.rest = errDamagedPage, ""
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func (d *pageReader) text() string {
	n, size := uvarint(d.rest)
	if size <= 0 || n > uint64(len(d.rest)-size) {
		d.err, d.rest = errDamagedPage, ""
		return ""
	}
	s := d.rest[size : size+int(n)]
	d.rest = d.rest[size+int(n):]
	return s
}

func (d *pageReader) number() int64 {
	u, size := uvarint(d.rest)
	if size <= 0 {
		d.err, d.rest = errDamagedPage, ""
		return 0
	}
	d.rest = d.rest[size:]
	n := int64(u >> 1)
	if u&1 != 0 {
		n = ^n
	}
	return n
}

// uvarint is binary.Uvarint for a string.
func uvarint(s string) (v uint64, size int) {
	for i := 0; i < len(s) && i < binary.MaxVarintLen64; i++ {
		b := s[i]
		if i == binary.MaxVarintLen64-1 && b > 1 {
			return 0, -1
		}
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}
