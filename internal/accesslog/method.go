package accesslog

// String returns the name of the method, or "" for OtherMethod.
func (m Method) String() string {
	switch m {
	case GET:
		return "GET"
	case HEAD:
		return "HEAD"
	case POST:
		return "POST"
	case PUT:
		return "PUT"
	case PATCH:
		return "PATCH"
	case DELETE:
		return "DELETE"
	case OPTIONS:
		return "OPTIONS"
	case CONNECT:
		return "CONNECT"
	case TRACE:
		return "TRACE"
	default:
		return ""
	}
}

// MethodName returns the method as the client sent it.
func (e *Entry) MethodName() string {
	if e.Method == OtherMethod {
		return e.MethodText
	}
	return e.Method.String()
}

// MethodOf returns the Method of a method as the client sent it.
func MethodOf(method string) Method {
	switch method {
	case "GET":
		return GET
	case "HEAD":
		return HEAD
	case "POST":
		return POST
	case "PUT":
		return PUT
	case "PATCH":
		return PATCH
	case "DELETE":
		return DELETE
	case "OPTIONS":
		return OPTIONS
	case "CONNECT":
		return CONNECT
	case "TRACE":
		return TRACE
	default:
		return OtherMethod
	}
}
