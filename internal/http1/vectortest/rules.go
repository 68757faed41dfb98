package vectortest

// Stricter lists the vectors that Node's parser accepts and this project
// refuses, with the rule that decides it (contract, 4.5 or RFC 9112).
func Stricter() map[string]string {
	return map[string]string{
		"request-method.md/SOURCE request with ICE":                                                     "only HTTP is spoken here",
		"request-method.md/OPTIONS request with RTSP":                                                   "only HTTP is spoken here",
		"request-method.md/ANNOUNCE request with RTSP":                                                  "only HTTP is spoken here",
		"request-sample.md/No HTTP version":                                                             "HTTP/0.9 is not spoken (contract, 4.5: HTTP/1.x)",
		"request-transfer-encoding.md/POST with `chunked` as last transfer-encoding":                    "any coding but a final chunked (contract, 4.5)",
		"request-transfer-encoding.md/POST with `chunked` as last transfer-encoding (multiple headers)": "any coding but a final chunked (contract, 4.5)",
	}
}

// Laxer lists the vectors that Node's parser refuses and this project reads, with
// the rule that decides it.
func Laxer() map[string]string {
	return map[string]string{
		"request-uri.md/Disallow UTF-8 in URI path in strict mode": "http-desync-guardian calls letters beyond ASCII compliant, and 4.5 does not refuse them",
		"request-invalid.md/HTTP protocol and ANNOUNCE method":     "a method is any token (RFC 9110, 9.1); routes say which are served",
		"request-invalid.md/Invalid method":                        "a method is any token (RFC 9110, 9.1); routes say which are served",
	}
}

// Codings lists the vectors of http-desync-guardian that are Compliant and
// refused here, with the rule that decides it.
func Codings() map[string]string {
	return map[string]string{
		"more-compliant-tests.yaml/Correct TE OK":                                             "any coding but a final chunked (contract, 4.5)",
		"more-compliant-tests.yaml/Transfer-Encoding: identity and chunked OK":                "any coding but a final chunked (contract, 4.5)",
		"more-compliant-tests.yaml/Multiple transfer encoding headers in a single request OK": "any coding but a final chunked (contract, 4.5)",
		"more-compliant-tests.yaml/TE with custom parameters OK":                              "chunked takes no parameters (RFC 9112, 7.1)",
		"rfc-compliant.yaml/Different Transfer-Encoding headers":                              "any coding but a final chunked (contract, 4.5)",
		"rfc-compliant.yaml/Different Transfer-Encoding headers combined":                     "any coding but a final chunked (contract, 4.5)",
		"rfc-compliant.yaml/Transfer-Encoding with a param: chunked;custom_param":             "any coding but a final chunked (contract, 4.5)",
		"rfc-compliant.yaml/Empty URI":                                                        "a request line has a target (RFC 9112, 3.2)",
	}
}
