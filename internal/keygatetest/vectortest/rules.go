package vectortest

// Stricter returns the vectors that Node's parser accepts and this project rejects, each
// with the rule by which it does (contract, 4.5, or RFC 9112).
func Stricter() map[string]string {
	return map[string]string{
		"request-method.md/SOURCE request with ICE":                                                     "only HTTP is supported",
		"request-method.md/OPTIONS request with RTSP":                                                   "only HTTP is supported",
		"request-method.md/ANNOUNCE request with RTSP":                                                  "only HTTP is supported",
		"request-sample.md/No HTTP version":                                                             "HTTP/0.9 is not supported (contract, 4.5: HTTP/1.x)",
		"request-transfer-encoding.md/POST with `chunked` as last transfer-encoding":                    "the only transfer coding allowed is chunked (contract, 4.5)",
		"request-transfer-encoding.md/POST with `chunked` as last transfer-encoding (multiple headers)": "the only transfer coding allowed is chunked (contract, 4.5)",
	}
}

// Laxer returns the vectors that Node's parser rejects and this project accepts, each
// with the rule by which it does.
func Laxer() map[string]string {
	return map[string]string{
		"request-uri.md/Disallow UTF-8 in URI path in strict mode": "http-desync-guardian classifies letters beyond ASCII as compliant, and 4.5 of the contract allows them",
		"request-invalid.md/HTTP protocol and ANNOUNCE method":     "a method is any token (RFC 9110, 9.1); routes list the methods that they accept",
		"request-invalid.md/Invalid method":                        "a method is any token (RFC 9110, 9.1); routes list the methods that they accept",
	}
}

// Codings returns the Compliant vectors of http-desync-guardian that this project
// rejects, each with the rule by which it does.
func Codings() map[string]string {
	return map[string]string{
		"more-compliant-tests.yaml/Correct TE OK":                                             "the only transfer coding allowed is chunked (contract, 4.5)",
		"more-compliant-tests.yaml/Transfer-Encoding: identity and chunked OK":                "the only transfer coding allowed is chunked (contract, 4.5)",
		"more-compliant-tests.yaml/Multiple transfer encoding headers in a single request OK": "the only transfer coding allowed is chunked (contract, 4.5)",
		"more-compliant-tests.yaml/TE with custom parameters OK":                              "chunked takes no parameters (RFC 9112, 7.1)",
		"rfc-compliant.yaml/Different Transfer-Encoding headers":                              "the only transfer coding allowed is chunked (contract, 4.5)",
		"rfc-compliant.yaml/Different Transfer-Encoding headers combined":                     "the only transfer coding allowed is chunked (contract, 4.5)",
		"rfc-compliant.yaml/Transfer-Encoding with a param: chunked;custom_param":             "the only transfer coding allowed is chunked (contract, 4.5)",
		"rfc-compliant.yaml/Empty URI":                                                        "a request line must have a target (RFC 9112, 3.2)",
	}
}
