package proxy

import (
	"bytes"
	"strings"
	"sync"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/ratelimit"
)

// costs reads what an exchange costs by the rules of its route (plans.md, section 5). It belongs to the exchange until its
// end. A nil *costs is that of a route without rules.
type costs struct {
	program *cost.Program
	reader  *cost.Reader                    // of the response's body; nil if no rule needs it, or there is no response yet
	headers [ratelimit.MaxCosts]cost.Figure // of the rules that name a header
	status  int                             // of the upstream's final response; 0 before it
	whole   bool                            // the response has been passed on to its end
	settled bool
	text    []byte // for the access record
}

var costsPool = sync.Pool{New: func() any { return &costs{} }} //nolint:gochecknoglobals // a cache

// newCosts returns the costs of a request to a route with the rules of p, or nil without rules.
func newCosts(p *cost.Program) *costs {
	if p == nil {
		return nil
	}
	c := costsPool.Get().(*costs)
	*c = costs{program: p, text: c.text[:0]}
	return c
}

// release gives c back once it is settled.
func (c *costs) release() {
	if c != nil {
		costsPool.Put(c)
	}
}

// readHead reads the head of the final response.
func (c *costs) readHead(head []byte, r *http1.Response) {
	if c == nil {
		return
	}
	c.status = r.Status
	c.readFields(head, r.Fields())
	if c.program.ReadsBody() {
		contentType, _ := fieldValue(head, r.Fields(), "content-type")
		encoding, _ := fieldValue(head, r.Fields(), "content-encoding")
		c.reader = c.program.Reader(contentType, encoding)
	}
}

// readFields reads the headers, or the trailers, that rules name. A trailer counts before the header of its name.
func (c *costs) readFields(text []byte, fields []http1.Field) {
	for i := range c.program.Rules() {
		from := &c.program.Rules()[i].From
		if from.Source != cost.FromHeader {
			continue
		}
		if value, found := fieldValue(text, fields, from.Header); found {
			c.headers[i] = cost.HeaderFigure(value)
		}
	}
}

// read reads data of the response's body.
func (c *costs) read(data []byte) {
	if c != nil && c.reader != nil {
		c.reader.Write(data)
	}
}

// readEnd reads the last data of the response's body and its trailers, which refer to section.
func (c *costs) readEnd(data, section []byte, trailers []http1.Field) {
	if c == nil || c.whole {
		return
	}
	c.read(data)
	c.readFields(section, trailers)
	c.whole = true
}

// settle sets in used what a request that was sent to an upstream costs. The first call counts.
func (c *costs) settle(used *ratelimit.Used, head bool, bytesIn, bytesOut int64) {
	if c == nil || c.settled {
		return
	}
	c.settled = true
	e := cost.End{Status: c.status, Head: head, Whole: c.whole, BytesIn: bytesIn, BytesOut: bytesOut}
	if c.status == 0 {
		e.BytesOut = 0 // they are of a response of the gateway itself
	}
	var room [maxReadText]byte
	for i := range c.program.Rules() {
		r := &c.program.Rules()[i]
		figure, read := c.headers[i], room[:0]
		switch {
		case r.From.Source == cost.FromHeader:
			read = append(read, r.From.Header...)
		case c.reader != nil && r.From.Source == cost.FromJSON:
			figure = c.reader.Figure(i)
			read = c.reader.AppendRead(read, i)
		}
		units, unknown := r.Settle(e, figure)
		used[ratelimit.UseCost+ratelimit.Use(i)] = units
		c.text = accesslog.AppendCost(c.text, &accesslog.Cost{
			Meter: r.Meter, Units: units, Reserved: r.Reserve, Unknown: unknown.String(), Read: Text(read),
		})
	}
	c.close()
}

// maxReadText is the number of bytes of the text of how a cost came about (accesslog.Cost.Read).
const maxReadText = 256

// drop ends the reading of a request of which nothing was sent to an upstream, and which costs nothing: also no request, if
// there is a rule for the meter requests.
func (c *costs) drop() {
	if c == nil || c.settled {
		return
	}
	c.settled = true
	c.close()
	if i := c.program.Rules().Of(ratelimit.Requests); i >= 0 {
		c.text = accesslog.AppendCost(c.text, &accesslog.Cost{Meter: ratelimit.Requests, Reserved: c.program.Rules()[i].Reserve})
	}
}

func (c *costs) close() {
	if c.reader != nil {
		c.reader.Close()
		c.reader = nil
	}
}

// record returns the text for the access record, which is valid until release.
func (c *costs) record() string {
	if c == nil {
		return ""
	}
	return Text(c.text)
}

// fieldValue returns the value of the fields with a name, in any letter case, as one list. The value of a single field
// shares the memory of text.
func fieldValue(text []byte, fields []http1.Field, name string) (value string, found bool) {
	var list []byte
	for i := range fields {
		f := &fields[i]
		if f.Name.Len() != len(name) || !strings.EqualFold(Text(f.Name.Of(text)), name) {
			continue
		}
		v := Text(f.Value.Of(text))
		switch {
		case !found:
			value, found = v, true
			continue
		case list == nil:
			list = append(list, value...)
		}
		list = append(append(list, ", "...), v...)
	}
	if list != nil {
		value = Text(list)
	}
	return value, found
}

// ReadData reads data of the response's body, as the upstream has sent it, before it is passed on.
func (x *Exchange) ReadData(data []byte) { x.costs.read(data) }

// ReadEnd reads the last data of the response's body and its trailers, which refer to section. It says that the response is
// whole, and must be called before Emit.
func (x *Exchange) ReadEnd(data, section []byte, trailers []http1.Field) {
	x.costs.readEnd(data, section, trailers)
}

// ObstructsCost reports whether a field of a request is not forwarded as it is when costs are read from the response: it
// could have another encoding than can be read, or be a part of the whole.
func ObstructsCost(name []byte) bool { return IsWithheld(obstructive[:], Text(name)) }

var obstructive = [...]string{"range", "if-range", "accept-encoding"} //nolint:gochecknoglobals // never written

// AcceptEncoding returns what the upstream is told to accept as the encoding of its response when costs are read from it:
// gzip and identity, of what the client accepts by the fields of its request. It is "" if the client says nothing.
func AcceptEncoding(text []byte, fields []http1.Field) string {
	value, present := fieldValue(text, fields, "accept-encoding")
	if !present {
		return ""
	}
	gzip, identity, others := false, true, false
	named := false
	http1.EachElement([]byte(value), func(element []byte) bool {
		name, parameters, _ := bytes.Cut(element, []byte(";"))
		accepted := !refusedByWeight(parameters)
		switch name = bytes.TrimSpace(name); {
		case bytes.EqualFold(name, []byte("gzip")), bytes.EqualFold(name, []byte("x-gzip")):
			gzip, named = gzip || accepted, true
		case bytes.EqualFold(name, []byte("identity")):
			identity = accepted
		case string(name) == "*":
			others = accepted
		}
		return true
	})
	switch gzip = gzip || others && !named; {
	case gzip && identity:
		return "gzip, identity"
	case gzip:
		return "gzip"
	default:
		return "identity"
	}
}

// refusedByWeight reports whether the parameters of an element have the weight 0 (RFC 9110, 12.4.2).
func refusedByWeight(parameters []byte) bool {
	name, weight, _ := bytes.Cut(bytes.TrimSpace(parameters), []byte("="))
	return bytes.EqualFold(bytes.TrimSpace(name), []byte("q")) && len(bytes.Trim(bytes.TrimSpace(weight), "0.")) == 0 && len(weight) > 0
}
