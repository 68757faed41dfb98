package h1

import (
	"strconv"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/message"
	"github.com/keygate/keygate/internal/proxy/send"
)

// responseWriter turns an upstream's response into the one for the client: it edits the
// head, frames the body as the client understands it, and drops trailers that the client
// does not accept. It does no I/O.
type responseWriter struct {
	writerState
	body message.Encoder
	room []byte // memory for the edited head
}

type writerState struct {
	// What it must know of the request.
	oldClient bool   // HTTP/1.0: no chunks, no 1xx
	keep      bool   // the client's connection may serve another request
	trailers  bool   // the client accepts trailers
	asked     []byte // the protocols to which the client wants to change
	verdict   *admit.Verdict
	links     send.Links
	id        string
	date      []byte
	closing   func() bool // called for the final head: reports whether the connection must close after the response

	head      []byte // the final head, until it is sent with the first data
	continued bool   // a 100 was relayed
	reset     bool   // only a reset shows the client that the body is truncated
}

// begin prepares w for a response.
func (w *responseWriter) begin(s writerState) {
	w.writerState = s
	w.body.Start(message.EncoderState{})
	if cap(w.room) > message.KeepRoom {
		w.room = nil
	}
	w.room = w.room[:0]
}

// relayed is what to send, in this order. Each part may be empty.
type relayed struct{ head, body, end []byte }

// interim returns the edited head of a 1xx response.
func (w *responseWriter) interim(head []byte, r *http1.Response) []byte {
	w.room = append(w.room[:0], "HTTP/1.1 "...)
	w.room = append(append(w.room, head[len("HTTP/1.1 "):r.Line.End]...), "\r\n"...)
	w.appendFields(head, r, proxy.ResponseDrop(r.Status, false))
	w.room = append(w.room, "\r\n"...)
	w.continued = w.continued || r.Status == 100
	return w.room
}

// final edits the final head and prepares for the body. bare is set if there is no body although no
// field says so.
func (w *responseWriter) final(head []byte, r *http1.Response, body http1.Framing, bare bool) {
	unframed := (body == http1.ByChunks || body == http1.UntilClose) && !bare
	chunked := unframed && !w.oldClient
	w.body.Start(message.EncoderState{Chunked: chunked, Response: true, Trailers: w.trailers, Withheld: proxy.Hidden(w.verdict)})
	w.reset = unframed && w.oldClient
	if w.closing() || w.reset {
		w.keep = false
	}
	w.statusLine(head, r)
	drop := proxy.ResponseDrop(r.Status, w.verdict.AllowOrigin != "")
	if chunked {
		drop |= 1 << http1.ContentLength // of a response over HTTP/2
	}
	kept := w.appendFields(head, r, drop)
	if chunked {
		w.room = append(w.room, "Transfer-Encoding: chunked\r\n"...)
		if w.trailers {
			w.room = proxy.AppendTrailerNames(w.room, head, r.Fields(), true, proxy.Hidden(w.verdict))
		}
	}
	if bare {
		w.room = append(w.room, "Content-Length: 0\r\n"...)
	}
	if !kept.Has(http1.Date) {
		w.room = append(append(append(w.room, "Date: "...), w.date...), "\r\n"...)
	}
	switch {
	case !w.keep:
		w.room = append(w.room, "Connection: close\r\n"...)
	case w.oldClient:
		w.room = append(w.room, "Connection: keep-alive\r\n"...)
	}
	w.finishHead()
}

// switched edits the head of a 101.
func (w *responseWriter) switched(head []byte, r *http1.Response) error {
	protocol := proxy.ValueOf(head, r.Fields(), http1.Upgrade)
	if !proxy.Offered(proxy.Text(w.asked), proxy.Text(protocol)) {
		return proxy.BadUpgrade()
	}
	w.statusLine(head, r)
	w.appendFields(head, r, proxy.ResponseDrop(r.Status, false))
	w.room = append(append(append(w.room, "Connection: Upgrade\r\nUpgrade: "...), protocol...), "\r\n"...)
	w.finishHead()
	return nil
}

// statusLine begins the head with the upstream's status line, changed to HTTP/1.1.
func (w *responseWriter) statusLine(head []byte, r *http1.Response) {
	const upToStatus = len("HTTP/1.1 200")
	w.room = append(append(w.room[:0], "HTTP/1.1"...), head[len("HTTP/1.1"):upToStatus]...)
	w.room = append(append(append(w.room, ' '), r.Reason.Of(head)...), "\r\n"...)
}

// appendFields appends the upstream's fields that are forwarded, and returns the set of
// those among them that have a Name.
func (w *responseWriter) appendFields(head []byte, r *http1.Response, drop proxy.Fields) (kept proxy.Fields) {
	fields := r.Fields()
	named, hidden := proxy.NamesOf(head, fields, r.Named()), proxy.Hidden(w.verdict)
	hides := !hidden.IsEmpty()
	run := proxy.RunsOf(w.room, head)
	for i := range fields {
		f := &fields[i]
		if drop.Has(f.ID) || named.Has(f) || proxy.SetsSession(f, head) || hides && hidden.Has(proxy.Text(f.Name.Of(head))) {
			run.Cut(f.Name.Start)
			continue
		}
		kept |= 1 << f.ID
		if value, changed := w.links.Readdress(f, head); changed {
			run.Cut(f.Name.Start)
			run.Dst = append(append(run.Dst, head[f.Name.Start:f.Value.Start]...), value...)
			run.Dst = append(run.Dst, "\r\n"...)
			continue
		}
		run.Keep(f.Name.Start)
	}
	run.Cut(uint32(r.End - len("\r\n")))
	w.room = run.Dst
	return kept
}

// finishHead completes the head with the fields that rules set, and the gateway's own.
func (w *responseWriter) finishHead() {
	proxy.EachSetOnResponse(w.verdict, w.id, func(name, value string) {
		w.room = append(append(append(append(w.room, name...), ": "...), value...), "\r\n"...)
	})
	w.room = append(append(append(w.room, "X-Request-Id: "...), w.id...), "\r\n"...)
	w.room = w.verdict.AppendFields(w.room)
	w.room = append(w.room, "\r\n"...)
	w.head = w.room
}

// data returns what to send for data of the body, including the head if it has not been
// sent.
func (w *responseWriter) data(buf []byte, from, to int) relayed {
	p := message.Piece{From: from, To: to}
	w.body.Encode(buf, &p)
	return w.merge(buf, p)
}

// end is like data, for the last data of the body.
func (w *responseWriter) end(buf []byte, from, to int, section []byte, trailers []http1.Field) relayed {
	p := message.Piece{From: from, To: to, End: w.body.Finish(section, trailers)}
	w.body.Encode(buf, &p)
	return w.merge(buf, p)
}

// merge joins head, data and end into one part if there is room for that.
func (w *responseWriter) merge(buf []byte, p message.Piece) relayed {
	out := relayed{head: w.head, end: p.End}
	w.head = nil
	if n := len(out.head); n > 0 && n <= p.From {
		p.From -= n
		copy(buf[p.From:], out.head)
		out.head = nil
	}
	if n := len(out.end); n > 0 && n <= len(buf)-p.To {
		p.To += copy(buf[p.To:], out.end)
		out.end = nil
	}
	out.body = buf[p.From:p.To]
	return out
}

// appendStatusLine appends the status line of a response of the gateway itself.
func appendStatusLine(dst []byte, status int, reason string) []byte {
	dst = strconv.AppendInt(append(dst, "HTTP/1.1 "...), int64(status), 10)
	return append(append(append(dst, ' '), reason...), "\r\n"...)
}
