package http1

// Statuses that the data plane knows by name (RFC 9110, 15).
const (
	StatusContinue              = 100
	StatusSwitchingProtocols    = 101
	StatusOK                    = 200
	StatusNoContent             = 204
	StatusUnauthorized          = 401
	StatusForbidden             = 403
	StatusNotFound              = 404
	StatusMethodNotAllowed      = 405
	StatusRequestEntityTooLarge = 413
	StatusTooManyRequests       = 429
	StatusInternalServerError   = 500
	StatusBadGateway            = 502
	StatusServiceUnavailable    = 503
	StatusGatewayTimeout        = 504
)

// statusTexts are the reason phrases of IANA's registry, by class and number within it.
var statusTexts = [...][]string{ //nolint:gochecknoglobals // a table that is never written
	1: {"Continue", "Switching Protocols", "Processing", "Early Hints"},
	2: {
		"OK", "Created", "Accepted", "Non-Authoritative Information", "No Content", "Reset Content", "Partial Content",
		"Multi-Status", "Already Reported", 26: "IM Used",
	},
	3: {
		"Multiple Choices", "Moved Permanently", "Found", "See Other", "Not Modified", "Use Proxy",
		7: "Temporary Redirect", 8: "Permanent Redirect",
	},
	4: {
		"Bad Request", "Unauthorized", "Payment Required", "Forbidden", "Not Found", "Method Not Allowed", "Not Acceptable",
		"Proxy Authentication Required", "Request Timeout", "Conflict", "Gone", "Length Required", "Precondition Failed",
		"Request Entity Too Large", "Request URI Too Long", "Unsupported Media Type", "Requested Range Not Satisfiable",
		"Expectation Failed", "I'm a teapot", 21: "Misdirected Request", 22: "Unprocessable Entity", 23: "Locked",
		24: "Failed Dependency", 25: "Too Early", 26: "Upgrade Required", 28: "Precondition Required", 29: "Too Many Requests",
		31: "Request Header Fields Too Large", 51: "Unavailable For Legal Reasons",
	},
	5: {
		"Internal Server Error", "Not Implemented", "Bad Gateway", "Service Unavailable", "Gateway Timeout",
		"HTTP Version Not Supported", "Variant Also Negotiates", "Insufficient Storage", "Loop Detected",
		10: "Not Extended", 11: "Network Authentication Required",
	},
}

// StatusText returns the usual reason phrase of a status, as net/http has it, or "".
func StatusText(status int) string {
	class, i := status/100, status%100
	if status < 0 || class >= len(statusTexts) || i >= len(statusTexts[class]) {
		return ""
	}
	return statusTexts[class][i]
}
