package http2

import (
	"strings"
	"testing"
)

const settled = "settings"

// serverCases are the rules of RFC 9113 for what a client may send, with the expected events. They
// include all cases of h2spec that concern the protocol and not the connection.
var serverCases = []struct {
	name   string
	script *script
	want   []string // beginnings of the lines after "settings"
}{
	{"3.4 settings after the preface", newClient(), nil},
	{"4.1 unknown frame", newClient().frame(0x16, 0xff, 0, "x").get(1), []string{"head 1 GET"}},
	{"4.1 undefined flags", newClient().frame(FramePing, 0x16, 0, "12345678").get(1), []string{"head 1 GET"}},
	{"4.1 reserved bit", newClient().frame(FramePing, 0, 1<<31, "12345678").get(1), []string{"head 1 GET"}},
	{"4.2 DATA of 2^14 bytes", newClient().post(1).frame(FrameData, FlagEndStream, 1, strings.Repeat("x", MaxFrame)), []string{"head 1 POST", "data 1"}},
	{"4.2 DATA of 2^14+1 bytes", newClient().post(1).frame(FrameData, FlagEndStream, 1, strings.Repeat("x", MaxFrame+1)), []string{"head 1 POST", "failed FRAME_SIZE_ERROR"}},
	{"4.2 HEADERS too long", newClient().frame(FrameHeaders, FlagEndHeaders, 1, strings.Repeat("x", MaxFrame+1)), []string{"failed FRAME_SIZE_ERROR"}},
	{"4.3 invalid header block", newClient().frame(FrameHeaders, FlagEndHeaders, 1, "\x40"), []string{"head 1 error: http2: COMPRESSION_ERROR", "failed COMPRESSION_ERROR"}},
	{"4.3 invalid trailer block", newClient().post(1).frame(FrameHeaders, FlagEndHeaders|FlagEndStream, 1, "\x40"), []string{"head 1", "trailers 1 error", "failed COMPRESSION_ERROR"}},
	{"4.3 header block interrupted by another type", newClient().frame(FrameHeaders, 0, 1, "").frame(FramePriority, 0, 1, u32(0)+"x"), []string{"failed PROTOCOL_ERROR"}},
	{"4.3 header block interrupted by another stream", newClient().frame(FrameHeaders, 0, 1, "").frame(FrameHeaders, FlagEndHeaders, 3, ""), []string{"failed PROTOCOL_ERROR"}},
	{"5.1 DATA on an idle stream", newClient().frame(FrameData, FlagEndStream, 1, "x"), []string{"failed PROTOCOL_ERROR"}},
	{"5.1 RST_STREAM on an idle stream", newClient().reset(1, Cancel), []string{"failed PROTOCOL_ERROR"}},
	{"5.1 WINDOW_UPDATE on an idle stream", newClient().frame(FrameWindowUpdate, 0, 1, u32(100)), []string{"failed PROTOCOL_ERROR"}},
	{"5.1 CONTINUATION on an idle stream", newClient().frame(FrameContinuation, FlagEndHeaders, 1, "x"), []string{"failed PROTOCOL_ERROR"}},
	{"5.1 DATA on a half-closed stream", newClient().get(1).frame(FrameData, FlagEndStream, 1, "x"), []string{"head 1", "reset 1 STREAM_CLOSED local=true"}},
	{"5.1 HEADERS on a half-closed stream", newClient().get(1).get(1), []string{"head 1", "reset 1 STREAM_CLOSED local=true"}},
	{"5.1 CONTINUATION on a half-closed stream", newClient().get(1).frame(FrameContinuation, FlagEndHeaders, 1, "x"), []string{"head 1", "failed PROTOCOL_ERROR"}},
	{"5.1 DATA after RST_STREAM", newClient().post(1).reset(1, Cancel).frame(FrameData, FlagEndStream, 1, "x").get(3), []string{"head 1", "reset 1 CANCEL local=false", "head 3"}},
	{"5.1 HEADERS after RST_STREAM", newClient().post(1).reset(1, Cancel).get(1), []string{"head 1", "reset 1 CANCEL local=false", "failed STREAM_CLOSED"}},
	{"5.1 CONTINUATION after RST_STREAM", newClient().post(1).reset(1, Cancel).frame(FrameContinuation, FlagEndHeaders, 1, "x"), []string{"head 1", "reset 1", "failed PROTOCOL_ERROR"}},
	{"5.1 WINDOW_UPDATE and RST_STREAM after RST_STREAM", newClient().post(1).reset(1, Cancel).frame(FrameWindowUpdate, 0, 1, u32(1)).reset(1, Cancel).get(3), []string{"head 1", "reset 1", "head 3"}},
	{"5.1.1 even stream", newClient().get(2), []string{"failed PROTOCOL_ERROR"}},
	{"5.1.1 lower stream", newClient().get(5).get(3), []string{"head 5", "failed STREAM_CLOSED"}},
	{"5.3.1 HEADERS depend on themselves", newClient().frame(FrameHeaders, FlagEndHeaders|FlagEndStream|FlagPriority, 1, u32(1)+"x"+newClient().encode(get...)).get(3), []string{"head 3"}},
	{"5.3.1 PRIORITY depends on itself", newClient().frame(FramePriority, 0, 3, u32(3)+"x"), []string{"failed PROTOCOL_ERROR"}},
	{"5.3.1 PRIORITY of an open stream depends on itself", newClient().post(1).frame(FramePriority, 0, 1, u32(1)+"x").get(3), []string{"head 1", "reset 1 PROTOCOL_ERROR local=true", "head 3"}},
	{"5.5 unknown frame in a header block", newClient().frame(FrameHeaders, 0, 1, "").frame(0x16, 0, 0, "x"), []string{"failed PROTOCOL_ERROR"}},
	{"6.1 DATA on stream 0", newClient().frame(FrameData, FlagEndStream, 0, "x"), []string{"failed PROTOCOL_ERROR"}},
	{"6.1 padded DATA", newClient().post(1).frame(FrameData, FlagPadded, 1, "\x03ab\x00\x00\x00").frame(FrameData, FlagPadded|FlagEndStream, 1, "\x00c"), []string{"head 1", `data 1 "abc" end`}},
	{"6.1 padding of the whole DATA", newClient().post(1).frame(FrameData, FlagPadded|FlagEndStream, 1, "\x01x"), []string{"head 1", `data 1 "" end`}},
	{"6.1 padding longer than DATA", newClient().post(1).frame(FrameData, FlagPadded|FlagEndStream, 1, "\x06xxxxx"), []string{"head 1", "failed PROTOCOL_ERROR"}},
	{"6.1 padded DATA without padding", newClient().post(1).frame(FrameData, FlagPadded|FlagEndStream, 1, ""), []string{"head 1", "failed FRAME_SIZE_ERROR"}},
	{"6.2 HEADERS with padding and priority", newClient().frame(FrameHeaders, FlagEndHeaders|FlagEndStream|FlagPriority|FlagPadded, 1, "\x02"+u32(0)+"x"+newClient().encode(get...)+"\x00\x00").get(3), []string{"head 1 GET", "head 3"}},
	{"6.2 HEADERS without END_HEADERS", newClient().frame(FrameHeaders, FlagEndStream, 1, "").frame(FramePing, 0, 0, "12345678"), []string{"failed PROTOCOL_ERROR"}},
	{"6.2 HEADERS on stream 0", newClient().get(0), []string{"failed PROTOCOL_ERROR"}},
	{"6.2 padding longer than HEADERS", newClient().frame(FrameHeaders, FlagEndHeaders|FlagPadded, 1, "\x06xxxxx"), []string{"failed PROTOCOL_ERROR"}},
	{"6.2 HEADERS too short for a priority", newClient().frame(FrameHeaders, FlagEndHeaders|FlagPriority, 1, "xxxx"), []string{"failed FRAME_SIZE_ERROR"}},
	{"6.3 PRIORITY", newClient().frame(FramePriority, 0, 1, u32(0)+"x").get(3).frame(FramePriority, 0, 3, u32(1)+"x").frame(FramePriority, 0, 1, u32(0)+"x").get(5), []string{"head 3", "head 5"}},
	{"6.3 PRIORITY on stream 0", newClient().frame(FramePriority, 0, 0, u32(1)+"x"), []string{"failed PROTOCOL_ERROR"}},
	{"6.3 PRIORITY of the wrong length", newClient().post(1).frame(FramePriority, 0, 1, u32(0)).get(3), []string{"head 1", "reset 1 FRAME_SIZE_ERROR local=true", "head 3"}},
	{"6.4 RST_STREAM", newClient().post(1).reset(1, EnhanceYourCalm), []string{"head 1", "reset 1 ENHANCE_YOUR_CALM local=false"}},
	{"6.4 RST_STREAM with an unknown code", newClient().post(1).reset(1, 0xff), []string{"head 1", "reset 1 0xff"}},
	{"6.4 RST_STREAM on stream 0", newClient().reset(0, Cancel), []string{"failed PROTOCOL_ERROR"}},
	{"6.4 RST_STREAM of the wrong length", newClient().post(1).frame(FrameReset, 0, 1, "xxx"), []string{"head 1", "failed FRAME_SIZE_ERROR"}},
	{"6.5 SETTINGS with an acknowledgement and settings", newClient().frame(FrameSettings, FlagAck, 0, "x"), []string{"failed FRAME_SIZE_ERROR"}},
	{"6.5 SETTINGS on a stream", newClient().frame(FrameSettings, 0, 1, ""), []string{"failed PROTOCOL_ERROR"}},
	{"6.5 SETTINGS of the wrong length", newClient().frame(FrameSettings, 0, 0, "xxx"), []string{"failed FRAME_SIZE_ERROR"}},
	{"6.5 unexpected acknowledgement", newClient().frame(FrameSettings, FlagAck, 0, ""), []string{"failed PROTOCOL_ERROR"}},
	{"6.5.2 ENABLE_PUSH of 2", newClient().frame(FrameSettings, 0, 0, setting(SettingEnablePush, 2)), []string{"failed PROTOCOL_ERROR"}},
	{"6.5.2 INITIAL_WINDOW_SIZE of 2^31", newClient().frame(FrameSettings, 0, 0, setting(SettingInitialWindowSize, 1<<31)), []string{"failed FLOW_CONTROL_ERROR"}},
	{"6.5.2 MAX_FRAME_SIZE too small", newClient().frame(FrameSettings, 0, 0, setting(SettingMaxFrameSize, MaxFrame-1)), []string{"failed PROTOCOL_ERROR"}},
	{"6.5.2 MAX_FRAME_SIZE too large", newClient().frame(FrameSettings, 0, 0, setting(SettingMaxFrameSize, 1<<24)), []string{"failed PROTOCOL_ERROR"}},
	{"6.5.2 unknown setting", newClient().frame(FrameSettings, 0, 0, setting(0xff, 1)).get(1), []string{"settings", "head 1"}},
	{"RFC 8441 ENABLE_CONNECT_PROTOCOL of 2", newClient().frame(FrameSettings, 0, 0, setting(SettingEnableConnectProtocol, 2)), []string{"failed PROTOCOL_ERROR"}},
	{"6.6 PUSH_PROMISE", newClient().post(1).frame(FramePushPromise, FlagEndHeaders, 1, u32(2)), []string{"head 1", "failed PROTOCOL_ERROR"}},
	{"6.7 PING on a stream", newClient().frame(FramePing, 0, 1, "12345678"), []string{"failed PROTOCOL_ERROR"}},
	{"6.7 PING of the wrong length", newClient().frame(FramePing, 0, 0, "123456"), []string{"failed FRAME_SIZE_ERROR"}},
	{"6.7 unexpected acknowledgement of PING", newClient().frame(FramePing, FlagAck, 0, "12345678").get(1), []string{"head 1"}},
	{"6.8 GOAWAY", newClient().frame(FrameGoAway, 0, 0, u32(0, uint32(Cancel))+"debug").get(1), []string{"goaway 0 CANCEL", "head 1"}},
	{"6.8 GOAWAY on a stream", newClient().frame(FrameGoAway, 0, 1, u32(0, 0)), []string{"failed PROTOCOL_ERROR"}},
	{"6.8 GOAWAY too short", newClient().frame(FrameGoAway, 0, 0, u32(0)), []string{"failed FRAME_SIZE_ERROR"}},
	{"6.9 WINDOW_UPDATE of 0", newClient().frame(FrameWindowUpdate, 0, 0, u32(0)), []string{"failed PROTOCOL_ERROR"}},
	{"6.9 WINDOW_UPDATE of 0 on a stream", newClient().post(1).frame(FrameWindowUpdate, 0, 1, u32(0)), []string{"head 1", "reset 1 PROTOCOL_ERROR local=true"}},
	{"6.9 WINDOW_UPDATE of the wrong length", newClient().frame(FrameWindowUpdate, 0, 0, "xxx"), []string{"failed FRAME_SIZE_ERROR"}},
	{"6.9.1 window of the connection above 2^31-1", newClient().frame(FrameWindowUpdate, 0, 0, u32(MaxWindow)), []string{"failed FLOW_CONTROL_ERROR"}},
	{"6.9.1 window of a stream above 2^31-1", newClient().post(1).frame(FrameWindowUpdate, 0, 1, u32(MaxWindow)).get(3), []string{"head 1", "reset 1 FLOW_CONTROL_ERROR local=true", "head 3"}},
	{"6.9.2 settings make a window too large", newClient().post(1).frame(FrameWindowUpdate, 0, 1, u32(1)).frame(FrameSettings, 0, 0, setting(SettingInitialWindowSize, MaxWindow)), []string{"head 1", "failed FLOW_CONTROL_ERROR"}},
	{"6.10 CONTINUATION", splitHead(newClient(), 1, 3), []string{"head 1 GET"}},
	{"6.10 CONTINUATION after END_HEADERS", newClient().post(1).frame(FrameContinuation, FlagEndHeaders, 1, ""), []string{"head 1", "failed PROTOCOL_ERROR"}},
	{"6.10 CONTINUATION on stream 0", newClient().frame(FrameHeaders, 0, 1, "").frame(FrameContinuation, FlagEndHeaders, 0, ""), []string{"failed PROTOCOL_ERROR"}},
	{"6.10 CONTINUATION after DATA", newClient().post(1).frame(FrameData, 0, 1, "x").frame(FrameContinuation, FlagEndHeaders, 1, ""), []string{"head 1", `data 1 "x"`, "failed PROTOCOL_ERROR"}},
	{"8.1 second HEADERS without END_STREAM", newClient().post(1).head(1, 0, "x-a: b"), []string{"head 1", "reset 1 PROTOCOL_ERROR local=true"}},
	{"8.1 trailers", newClient().post(1).frame(FrameData, 0, 1, "x").head(1, FlagEndStream, "x-a: b", "x-c: d"), []string{"head 1", `data 1 "x"`, "trailers 1 x-a: b | x-c: d end"}},
	{"8.1 pseudo-header field in trailers", newClient().post(1).head(1, FlagEndStream, ":method: GET"), []string{"head 1", "trailers 1 error: http2: malformed message: invalid pseudo"}},
	{"8.1.1 content-length as the body", newClient().head(1, 0, append(post, "content-length: 3")...).frame(FrameData, 0, 1, "ab").frame(FrameData, FlagEndStream, 1, "c"), []string{"head 1 POST / length=3 chunked=false", `data 1 "abc" end`}},
	{"8.1.1 body longer than content-length", newClient().head(1, 0, append(post, "content-length: 1")...).frame(FrameData, 0, 1, "ab"), []string{"head 1", "reset 1 PROTOCOL_ERROR local=true"}},
	{"8.1.1 body shorter than content-length", newClient().head(1, 0, append(post, "content-length: 3")...).frame(FrameData, FlagEndStream, 1, "ab"), []string{"head 1", "reset 1 PROTOCOL_ERROR local=true"}},
	{"8.1.1 trailers before the end of content-length", newClient().head(1, 0, append(post, "content-length: 3")...).head(1, FlagEndStream, "x-a: b"), []string{"head 1", "reset 1 PROTOCOL_ERROR local=true"}},
	{"8.1.1 no body although content-length says so", newClient().head(1, FlagEndStream, append(post, "content-length: 3")...), []string{"head 1 error: http2: malformed message: invalid Content-Length"}},
	{"9.1 the rest after a malformed request", newClient().head(1, FlagEndStream, ":method: GET").get(3), []string{"head 1 error: http2: malformed", "head 3 GET"}},
}

// splitHead adds a GET whose block is in HEADERS and n CONTINUATION frames.
func splitHead(s *script, stream uint32, n int) *script {
	block := s.encode(append(get, "x-a: "+strings.Repeat("b", 20))...)
	kind, flags := FrameHeaders, FlagEndStream
	for i := range n {
		piece := block[:max(1, len(block)/(n+1-i))]
		s.frame(kind, flags, stream, piece)
		block, kind, flags = block[len(piece):], FrameContinuation, 0
	}
	return s.frame(kind, flags|FlagEndHeaders, stream, block)
}

// Guarantee: what a client sends is accepted, rejected with its stream or rejected with the
// connection as RFC 9113 says, however the bytes are split.
func TestServerFollowsTheRFC(t *testing.T) {
	for _, c := range serverCases {
		t.Run(c.name, func(t *testing.T) {
			d := playAll(t, Config{}, nil, c.script.Bytes())
			d.want(t, append([]string{settled}, c.want...)...)
		})
	}
}

// Guarantee: a client that does not begin with the preface and its settings is rejected.
func TestPreface(t *testing.T) {
	for _, c := range []struct{ name, input, want string }{
		{"HTTP/1.1", "GET / HTTP/1.1\r\n\r\n", "failed PROTOCOL_ERROR"},
		{"wrong end", Preface[:len(Preface)-1] + "x", "failed PROTOCOL_ERROR"},
		{"unfinished", Preface[:10], ""},
		{"no settings", Preface + string(AppendPing(nil, false, [8]byte{})), "failed PROTOCOL_ERROR"},
		{"only an acknowledgement", Preface + string(AppendSettingsAck(nil)), "failed PROTOCOL_ERROR"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := playAll(t, Config{}, nil, []byte(c.input))
			d.want(t, c.want)
			if _, open := d.AwaitsHead(); !open {
				t.Error("got AwaitsHead false before the settings, want true")
			}
		})
	}
}

// open begins n requests of a client, streams 1, 3, ….
func open(n int) func(*owner) {
	return func(d *owner) {
		for range n {
			if id, ok := d.Open(false); ok {
				for _, f := range get {
					name, value, _ := strings.Cut(f[1:], ": ")
					d.FieldString(":"+name, value, false)
				}
				d.EndHead(true)
				d.SetOwner(id, id)
			}
		}
	}
}

const okStatus = ":status: 200"

var clientCases = []struct {
	name   string
	script *script
	want   []string
}{
	{"response", newServer().head(1, FlagEndStream, okStatus, "x-a: b"), []string{"head 1 200 length=-1 chunked=true x-a: b end"}},
	{"response with a body and trailers", newServer().head(1, 0, okStatus).frame(FrameData, 0, 1, "x").head(1, FlagEndStream, "grpc-status: 0"), []string{"head 1 200", `data 1 "x"`, "trailers 1 grpc-status: 0 end"}},
	{"interim responses", newServer().head(1, 0, ":status: 100").head(1, 0, ":status: 103", "link: x").head(1, FlagEndStream, okStatus), []string{"head 1 100", "head 1 103", "head 1 200"}},
	{"interim response that ends the stream", newServer().head(1, FlagEndStream, ":status: 100"), []string{"head 1 error: http2: malformed"}},
	{"101", newServer().head(1, 0, ":status: 101"), []string{"head 1 error: http2: malformed"}},
	{"no status", newServer().head(1, 0, "x-a: b"), []string{"head 1 error: http2: malformed"}},
	{"two statuses", newServer().head(1, 0, okStatus, okStatus), []string{"head 1 error: http2: malformed"}},
	{"pseudo-header field of a request", newServer().head(1, 0, okStatus, ":path: /"), []string{"head 1 error: http2: malformed"}},
	{"DATA before the head", newServer().frame(FrameData, 0, 1, "x"), []string{"reset 1 PROTOCOL_ERROR local=true"}},
	{"DATA after an interim head", newServer().head(1, 0, ":status: 100").frame(FrameData, 0, 1, "x"), []string{"head 1 100", "reset 1 PROTOCOL_ERROR local=true"}},
	{"content-length as the body", newServer().head(1, 0, okStatus, "content-length: 2").frame(FrameData, FlagEndStream, 1, "ab"), []string{"head 1 200 length=2 chunked=false", `data 1 "ab" end`}},
	{"content-length too small", newServer().head(1, 0, okStatus, "content-length: 2").frame(FrameData, FlagEndStream, 1, "abc"), []string{"head 1", "reset 1 PROTOCOL_ERROR local=true"}},
	{"body of a 204", newServer().head(1, 0, ":status: 204").frame(FrameData, FlagEndStream, 1, "abc"), []string{"head 1", "reset 1 PROTOCOL_ERROR local=true"}},
	{"content-length of a 304", newServer().head(1, FlagEndStream, ":status: 304", "content-length: 5"), []string{"head 1 304"}},
	{"response without a request", newServer().head(5, FlagEndStream, okStatus), []string{"failed PROTOCOL_ERROR"}},
	{"response on an even stream", newServer().head(2, FlagEndStream, okStatus), []string{"failed PROTOCOL_ERROR"}},
	{"PUSH_PROMISE", newServer().frame(FramePushPromise, FlagEndHeaders, 1, u32(2)), []string{"failed PROTOCOL_ERROR"}},
	{"ENABLE_PUSH", newServer().frame(FrameSettings, 0, 0, setting(SettingEnablePush, 1)), []string{"failed PROTOCOL_ERROR"}},
	{"extended CONNECT withdrawn", newServer().frame(FrameSettings, 0, 0, setting(SettingEnableConnectProtocol, 1)).frame(FrameSettings, 0, 0, setting(SettingEnableConnectProtocol, 0)), []string{"settings", "failed PROTOCOL_ERROR"}},
	{"second response", newServer().head(1, FlagEndStream, okStatus).head(1, FlagEndStream, okStatus), []string{"head 1", "reset 1 STREAM_CLOSED local=true"}},
	{"RST_STREAM", newServer().reset(1, RefusedStream).reset(3, InternalError), []string{"reset 1 REFUSED_STREAM local=false", "reset 3 INTERNAL_ERROR local=false"}},
	{"response after RST_STREAM", newServer().reset(1, Cancel).head(1, FlagEndStream, okStatus), []string{"reset 1 CANCEL", "failed STREAM_CLOSED"}},
	{"GOAWAY", newServer().frame(FrameGoAway, 0, 0, u32(1, 0)).head(1, FlagEndStream, okStatus), []string{"goaway 1 NO_ERROR", "reset 3 REFUSED_STREAM local=false", "head 1"}},
	{"GOAWAY twice", newServer().frame(FrameGoAway, 0, 0, u32(MaxStreamID, 0)).frame(FrameGoAway, 0, 0, u32(0, 0)), []string{"goaway 2147483647 NO_ERROR", "goaway 0 NO_ERROR", "reset 1 REFUSED_STREAM", "reset 3 REFUSED_STREAM"}},
}

// Guarantee: what a server sends is accepted, rejected with its stream or rejected with the
// connection as RFC 9113 says, however the bytes are split.
func TestClientFollowsTheRFC(t *testing.T) {
	for _, c := range clientCases {
		t.Run(c.name, func(t *testing.T) {
			d := playAll(t, Config{Role: Client}, open(2), c.script.Bytes())
			d.want(t, append([]string{settled}, c.want...)...)
		})
	}
}

// Guarantee: the response to HEAD has no body, whatever its content-length says.
func TestResponseToHead(t *testing.T) {
	head := func(d *owner) {
		d.Open(true)
		d.EndHead(true)
	}
	d := playAll(t, Config{Role: Client}, head, newServer().head(1, FlagEndStream, okStatus, "content-length: 5").Bytes())
	d.want(t, settled, "head 1 200 length=5 chunked=false content-length: 5 end")
	d = playAll(t, Config{Role: Client}, head, newServer().head(1, 0, okStatus, "content-length: 5").frame(FrameData, FlagEndStream, 1, "12345").Bytes())
	d.want(t, settled, "head 1", "reset 1 PROTOCOL_ERROR local=true")
}
