package rows

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

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

// pageVersion is the first byte of a page: the form of what follows.
const pageVersion = 1

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
	var raw []byte
	for from := 0; from < len(routes); {
		raw = raw[:0]
		to := from
		for to < len(routes) && to-from < maxRoutes && len(raw) < maxBytes {
			raw = appendRoute(raw, &routes[to])
			to++
		}
		head := binary.AppendUvarint([]byte{pageVersion}, uint64(to-from))
		all = append(all, RoutePage{routes[from].ID, to - from, c.enc.EncodeAll(raw, head)})
		from = to
	}
	return all
}

func appendRoute(b []byte, r *gateway.Route) []byte {
	l := &r.RateLimit
	flags := byte(0)
	if r.LimitByAPI {
		flags |= 1
	}
	if !r.CreatedAt.IsZero() {
		flags |= 2
	}
	b = append(b, flags)
	for _, s := range [...]string{
		r.ID, r.Path, strings.Join(r.Methods, " "), l.Sustained.String(), l.Burst.String(), l.Daily.String(), l.Per,
		string(r.Auth), string(r.Source),
	} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	if flags&2 != 0 {
		b = binary.AppendVarint(b, r.CreatedAt.UnixMicro())
	}
	return binary.AppendVarint(b, r.Version)
}

var errDamagedPage = errors.New("a page of routes is damaged")

// Routes decodes a page of the gateway and appends its routes to list.
func (c *PageCodec) Routes(list []gateway.Route, gatewayID string, content []byte) ([]gateway.Route, error) {
	if len(content) == 0 || content[0] != pageVersion {
		return list, errDamagedPage
	}
	n, size := binary.Uvarint(content[1:])
	if size <= 0 {
		return list, errDamagedPage
	}
	raw, err := c.dec.DecodeAll(content[1+size:], nil)
	if err != nil {
		return list, fmt.Errorf("%w: %w", errDamagedPage, err)
	}
	d := pageReader{rest: string(raw), methods: map[string][]string{}}
	for range n {
		list = append(list, d.route(gatewayID))
		if d.err != nil {
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
	rest    string
	methods map[string][]string // by their text: most routes have the same few
	err     error
}

func (d *pageReader) route(gatewayID string) (r gateway.Route) {
	if d.rest == "" {
		d.err = errDamagedPage
		return r
	}
	flags := d.rest[0]
	d.rest = d.rest[1:]
	r.GatewayID, r.LimitByAPI = gatewayID, flags&1 != 0
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
	if flags&2 != 0 {
		r.CreatedAt = time.UnixMicro(d.number()).UTC()
	}
	r.Version = d.number()
	if d.err == nil && sustained+burst+daily+per != "" {
		r.RateLimit, d.err = rateLimit(sustained, burst, daily, per)
	}
	return r
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
