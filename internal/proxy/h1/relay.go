package h1

import (
	"errors"
	"strconv"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
)

// What an upstream may do wrong.
var (
	errNoAnswer = errors.New("the upstream closed the connection without an answer")
)

// relayState is where a relay stands.
type relayState uint8

const (
	relayHead   relayState = iota // before the final head
	relayBody                     // in the body
	relayDone                     // the message is complete
	relayTunnel                   // behind a 101
)

// relay turns what the upstream sends into what the client gets: 1xx answers, the
// head edited, the body in the framing that the client understands, trailers if
// it takes them. It does no I/O.
type relay struct {
	// Of the request.
	isHead    bool   // the method is HEAD: no body follows
	oldClient bool   // of HTTP/1.0: no chunks, no 1xx
	keep      bool   // the client's connection can serve another request
	trailers  bool   // the client takes trailers
	asked     []byte // the protocols that the client wants to change to
	verdict   *admit.Verdict
	id        string
	date      []byte
	closing   func() bool // asked at the final head: the connection must close after it

	state     relayState
	parser    http1.ResponseParser
	resp      http1.Response
	body      recoder
	out       []byte // the edited head
	continued bool   // a 100 was relayed
	reset     bool   // only a reset would tell the client that the body is cut off
	extra     bool   // the upstream said more than its answer
}

// begin makes r ready for an answer. The fields of the request are set after it.
func (r *relay) begin() {
	r.state, r.continued, r.reset, r.extra, r.asked = relayHead, false, false, false, nil
	if cap(r.out) > http1.MaxHead {
		r.out = nil // grown for one long head
	}
	r.parser.Reset()
}

// reusable reports whether the upstream's connection can serve another request
// after the answer.
func (r *relay) reusable() bool {
	return r.state == relayDone && !r.extra && r.body.in != http1.UntilClose && r.resp.KeepAlive()
}

// relayed is what is to be sent, in this order; each part may be empty.
type relayed struct {
	head, body, end []byte
	// next is where the upstream's bytes go on that were not used: at the start
	// as long as a head is incomplete.
	next int
}

// step takes what the upstream sent, buf[start:end]. It uses room before start.
func (r *relay) step(buf []byte, start, end int) (out relayed, err error) {
	out.next = start
	if r.state == relayHead {
		done, err := r.parser.Parse(buf[start:end], &r.resp)
		if err != nil || !done {
			return out, err
		}
		next := start + r.resp.End
		switch status := r.resp.Status; {
		case status == 101:
			return r.switched(buf[start:next], next)
		case status < 200:
			if !r.oldClient {
				r.interim(buf[start:next])
				out.head = r.out
			}
			r.parser.Reset()
			out.next = next
			return out, nil
		}
		r.final(buf[start:next])
		out.head, start = r.out, next
	}
	p, err := r.body.step(buf, start, end)
	if err != nil {
		return out, err
	}
	out.next, out.body, out.end = end, buf[p.from:p.to], p.end
	if r.body.done {
		r.state = relayDone
		r.extra = p.used < end
	}
	r.merge(buf, &out, p)
	return out, nil
}

// merge makes one part of the three where there is room for it.
func (r *relay) merge(buf []byte, out *relayed, p piece) {
	if n := len(out.head); n > 0 && n <= p.from {
		p.from -= n
		copy(buf[p.from:], out.head)
		out.head = nil
	}
	if n := len(out.end); n > 0 && n <= len(buf)-p.to {
		p.to += copy(buf[p.to:], out.end)
		out.end = nil
	}
	out.body = buf[p.from:p.to]
}

// closed takes the end of the upstream's connection. It returns what is to be
// sent for it.
func (r *relay) closed(pending bool) (end []byte, err error) {
	switch {
	case r.state == relayHead && !pending:
		return nil, errNoAnswer
	case r.state == relayHead:
		return nil, errCut
	}
	if end, err = r.body.closed(); err == nil {
		r.state = relayDone
	}
	return end, err
}

// interim edits the head of a 1xx answer.
func (r *relay) interim(head []byte) {
	r.out = append(r.out[:0], "HTTP/1.1 "...)
	r.out = append(append(r.out, head[len("HTTP/1.1 "):r.resp.Line.End]...), "\r\n"...)
	r.fields(head, proxy.ResponseDrop(r.resp.Status, false))
	r.out = append(r.out, "\r\n"...)
	r.continued = r.continued || r.resp.Status == 100
}

// final edits the head of the answer and makes ready for the body.
func (r *relay) final(head []byte) {
	resp := &r.resp
	in := resp.Framing(r.isHead)
	unframed := in == http1.ByChunks || in == http1.UntilClose
	chunked := unframed && !r.oldClient
	r.body.start(in, resp.ContentLength(), chunked)
	r.body.answer, r.body.trailers = true, r.trailers
	r.reset = unframed && r.oldClient
	if r.closing() || r.reset {
		r.keep = false
	}
	r.state = relayBody

	r.statusLine(head)
	kept := r.fields(head, proxy.ResponseDrop(resp.Status, r.verdict.AllowOrigin != ""))
	if chunked {
		r.out = append(r.out, "Transfer-Encoding: chunked\r\n"...)
		if r.trailers {
			r.out = appendTrailerNames(r.out, head, resp.Fields(), true, nil)
		}
	}
	if !kept.Has(http1.Date) {
		r.out = append(append(append(r.out, "Date: "...), r.date...), "\r\n"...)
	}
	switch {
	case !r.keep:
		r.out = append(r.out, "Connection: close\r\n"...)
	case r.oldClient:
		r.out = append(r.out, "Connection: keep-alive\r\n"...)
	}
	r.own()
}

// statusLine begins the head with the upstream's status line, as of HTTP/1.1.
func (r *relay) statusLine(head []byte) {
	const upToStatus = len("HTTP/1.1 200")
	r.out = append(append(r.out[:0], "HTTP/1.1"...), head[len("HTTP/1.1"):upToStatus]...)
	r.out = append(append(append(r.out, ' '), r.resp.Reason.Of(head)...), "\r\n"...)
}

// fields appends the upstream's fields that pass. kept tells which are among
// them.
func (r *relay) fields(head []byte, drop proxy.Fields) (kept proxy.Fields) {
	fields, named := r.resp.Fields(), r.resp.Named()
	run := runs{dst: r.out, buf: head, from: -1}
	for i := range fields {
		f := &fields[i]
		if drop.Has(f.ID) || named && namedByConnection(head, fields, f) {
			run.cut(f.Name.Start)
			continue
		}
		kept |= 1 << f.ID
		run.keep(f.Name.Start)
	}
	run.cut(uint32(r.resp.End - len("\r\n")))
	r.out = run.dst
	return kept
}

// own ends the head with the fields that are ours.
func (r *relay) own() {
	r.out = append(append(append(r.out, "X-Request-Id: "...), r.id...), "\r\n"...)
	r.out = r.verdict.AppendFields(r.out)
	r.out = append(r.out, "\r\n"...)
}

// switched edits the head of a 101.
func (r *relay) switched(head []byte, next int) (out relayed, err error) {
	protocol := valueOf(head, r.resp.Fields(), http1.Upgrade)
	if !proxy.Offered(proxy.Text(r.asked), proxy.Text(protocol)) {
		return relayed{next: next}, proxy.BadUpgrade()
	}
	r.state = relayTunnel
	r.statusLine(head)
	r.fields(head, proxy.ResponseDrop(r.resp.Status, false))
	r.out = append(append(append(r.out, "Connection: Upgrade\r\nUpgrade: "...), protocol...), "\r\n"...)
	r.own()
	return relayed{head: r.out, next: next}, nil
}

// appendStatusLine appends a status line of our own.
func appendStatusLine(dst []byte, status int, reason string) []byte {
	dst = strconv.AppendInt(append(dst, "HTTP/1.1 "...), int64(status), 10)
	return append(append(append(dst, ' '), reason...), "\r\n"...)
}
