package writer

import (
	"net/netip"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/id"
)

// appendLine appends the line of a request: a JSON object and a newline. What a request does
// not have is null.
func appendLine(b []byte, e *accesslog.Entry) []byte {
	b = append(b, `{"time":"`...)
	b = time.UnixMicro(e.Start).UTC().AppendFormat(b, "2006-01-02T15:04:05.000000Z")
	b = append(b, `","request_id":`...)
	b = appendID(b, id.Request, e.Request)
	b = append(b, `,"gateway_id":`...)
	b = appendID(b, id.Gateway, e.Gateway)
	b = append(b, `,"route_id":`...)
	b = appendID(b, id.Route, e.Route)
	b = append(b, `,"key_id":`...)
	b = appendID(b, id.Key, e.Key)
	b = append(b, `,"owner":`...)
	b = appendText(b, e.Owner)
	b = append(b, `,"method":`...)
	b = appendText(b, e.MethodName())
	b = append(b, `,"path":`...)
	b = appendText(b, apikey.Redact(e.Path))
	b = append(b, `,"status":`...)
	b = strconv.AppendUint(b, uint64(e.Status), 10)
	b = append(b, `,"bytes_in":`...)
	b = strconv.AppendInt(b, e.BytesIn, 10)
	b = append(b, `,"bytes_out":`...)
	b = strconv.AppendInt(b, e.BytesOut, 10)
	b = append(b, `,"duration_ms":`...)
	b = appendMilliseconds(b, e.Duration)
	b = append(b, `,"upstream_ms":`...)
	b = appendMilliseconds(b, e.Upstream)
	b = append(b, `,"client_ip":`...)
	b = appendAddress(b, e.Client)
	b = append(b, `,"protocol":`...)
	b = appendProtocol(b, e.Major, e.Minor)
	b = append(b, `,"cost":`...)
	b = appendCosts(b, e.Cost)
	b = append(b, `,"upstream":`...)
	b = appendText(b, e.UpstreamName)
	b = append(b, `,"target":`...)
	b = appendText(b, e.Target)
	b = append(b, `,"attempts":`...)
	b = appendAttempts(b, e.AttemptList)
	b = append(b, `,"side":`...)
	b = appendText(b, e.Side())
	return append(b, '}', '\n')
}

func appendID(b []byte, k id.Kind, u [16]byte) []byte {
	if u == ([16]byte{}) {
		return append(b, "null"...)
	}
	return append(id.Append(append(b, '"'), k, u), '"')
}

// appendMilliseconds appends nanoseconds in milliseconds, with three decimals. A negative
// number means absent.
func appendMilliseconds(b []byte, ns int64) []byte {
	if ns < 0 {
		return append(b, "null"...)
	}
	return strconv.AppendFloat(b, float64(ns/int64(time.Microsecond))/1000, 'f', -1, 64)
}

func appendAddress(b []byte, client [16]byte) []byte {
	if client == ([16]byte{}) {
		return append(b, "null"...)
	}
	return append(netip.AddrFrom16(client).Unmap().AppendTo(append(b, '"')), '"')
}

func appendProtocol(b []byte, major, minor uint8) []byte {
	if major == 0 {
		return append(b, "null"...)
	}
	b = strconv.AppendUint(append(b, `"HTTP/`...), uint64(major), 10)
	return append(strconv.AppendUint(append(b, '.'), uint64(minor), 10), '"')
}

// appendCosts appends an object with the costs of a request by meter.
func appendCosts(b []byte, text string) []byte {
	separator := byte('{')
	for c := range accesslog.Costs(text) {
		b = appendText(append(b, separator), c.Meter)
		b = strconv.AppendInt(append(b, `:{"units":`...), c.Units, 10)
		b = strconv.AppendInt(append(b, `,"reserved":`...), c.Reserved, 10)
		b = append(appendText(append(b, `,"unknown":`...), c.Unknown), '}')
		separator = ','
	}
	if separator == '{' {
		return append(b, "null"...)
	}
	return append(b, '}')
}

// appendAttempts appends a list of the attempts of a request.
func appendAttempts(b []byte, text string) []byte {
	separator := byte('[')
	for a := range accesslog.Attempts(text) {
		b = appendText(append(append(b, separator), `{"target":`...), a.Target)
		b = appendText(append(b, `,"result":`...), a.Result)
		b = appendText(append(b, `,"reason":`...), a.Reason.String())
		b = append(b, `,"status":`...)
		if a.Status == 0 {
			b = append(b, "null"...)
		} else {
			b = strconv.AppendUint(b, uint64(a.Status), 10)
		}
		b = append(appendMilliseconds(append(b, `,"duration_ms":`...), a.Took.Nanoseconds()), '}')
		separator = ','
	}
	if separator == '[' {
		return append(b, "null"...)
	}
	return append(b, ']')
}

// appendText appends a JSON string, or null for "". Bytes that are not UTF-8 become U+FFFD.
func appendText(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	const digits = "0123456789abcdef"
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ' || 0x7f <= r && r < 0xa0: // C0 and C1 controls, which terminals obey
			b = append(b, '\\', 'u', '0', '0', digits[r>>4], digits[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
