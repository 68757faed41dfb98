package accesslog

// Reason is why an upstream could not be reached or did not respond (for the results Unreachable,
// TimedOut and Failed), why an admitted request was ended (for any result), what is wrong with the
// key (for KeyInvalid), whose lists do not allow the address (for AddressDenied), or that the document of the gateway
// is not met (for Malformed). The request log stores its number, so a new reason is added at the end.
type Reason uint8

// The reasons.
const (
	NoReason            Reason = iota // unknown, or the upstream is not the cause
	ConnectionRefused                 // nothing listens at the address of the upstream
	NameNotFound                      // its name does not exist
	NameLookupFailed                  // its name could not be looked up
	HostUnreachable                   // there is no way to its network or machine
	AddressNotAllowed                 // the guard refused its address (contract, 4.6)
	ConnectTimeout                    // connecting, or the TLS handshake, took too long
	NoFreeConnection                  // the gateway's connections were all in use until the timeout
	NoDescriptors                     // this process has no file descriptor left
	TLSFailed                         // the TLS handshake failed
	CertificateRejected               // the upstream's certificate is not valid for it
	MalformedResponse                 // the response does not follow HTTP
	ResponseTooLarge                  // the head of the response is too large
	ClosedEarly                       // the connection ended before the head of a response
	ResponseTimeout                   // the head of the response took too long
	UnexpectedUpgrade                 // the upstream changed to a protocol that was not asked for
	ForwardingLoop                    // the request came back to this gateway
	KeyWasRevoked                     // the key was revoked after the request was admitted
	KeyHasExpired                     // the key expired meanwhile
	KeyNotAllowed                     // the key does not allow the request any more
	GatewayGone                       // the gateway was deleted, or its account suspended
	LeaseLost                         // the node could not confirm its configuration
	NoKey                             // the request has no key
	KeyWithoutScheme                  // the key is in Authorization without the scheme Bearer
	KeyInOtherHeader                  // the key is in a header that the gateway does not read
	MistypedKey                       // it begins like a key, and its length or checksum does not fit
	NotAKey                           // what was sent as a key does not begin like one
	UnknownKey                        // it has the form of a key, and is none of the account
	OwnerWasSuspended                 // the owner of the key was suspended after the request was admitted
	TargetGone                        // its target was drained or removed, and drain_timeout has passed (targets.md, section 6)
	AllDrained                        // every target of the upstream was being drained
	AddressFailed                     // the address had failed to authenticate too often, so imported keys were not looked up for it
	GatewayAddresses                  // the gateway's lists do not allow the address (for AddressDenied, as the next two)
	KeyAddresses                      // the key's lists do not
	RouteAddresses                    // the route's lists do not
	AddressTaken                      // the lists were changed after the request was admitted, and do not allow its address any more
	MaintenanceBegan                  // the gateway was put under maintenance after the request was admitted, and before it was sent
	TokenRefused                      // the token failed a check; the detail says which
	KeyForToken                       // a key was sent where only tokens are accepted
	TokensFailed                      // too many tokens of the address had failed, so the token was not checked
	TokensBusy                        // there was more work on signatures than the node does
	DocumentMismatch                  // the request does not meet the OpenAPI document of the gateway; the detail says what of it
)

// IsAccess reports whether r is a reason for which an admitted request was ended.
func (r Reason) IsAccess() bool {
	return KeyWasRevoked <= r && r <= LeaseLost || r == OwnerWasSuspended || r == TargetGone || r == AddressTaken || r == MaintenanceBegan
}

// String returns the name of the reason, or "" for NoReason.
func (r Reason) String() string {
	names := [...]string{
		ConnectionRefused: "connection_refused", NameNotFound: "name_not_found", NameLookupFailed: "name_lookup_failed",
		HostUnreachable: "host_unreachable", AddressNotAllowed: "address_not_allowed", ConnectTimeout: "connect_timeout",
		NoFreeConnection: "no_free_connection", NoDescriptors: "no_descriptors", TLSFailed: "tls_failed",
		CertificateRejected: "certificate_rejected", MalformedResponse: "malformed_response", ResponseTooLarge: "response_too_large",
		ClosedEarly: "closed_early", ResponseTimeout: "timeout", UnexpectedUpgrade: "unexpected_upgrade", ForwardingLoop: "loop",
		KeyWasRevoked: "key_revoked", KeyHasExpired: "key_expired", KeyNotAllowed: "key_not_allowed", GatewayGone: "gateway_gone", LeaseLost: "lease_lost",
		NoKey: "no_key", KeyWithoutScheme: "key_without_scheme", KeyInOtherHeader: "key_in_other_header",
		MistypedKey: "mistyped_key", NotAKey: "not_a_key", UnknownKey: "unknown_key",
		OwnerWasSuspended: "owner_suspended", TargetGone: "target_gone", AllDrained: "all_drained",
		AddressFailed: "address_failed", GatewayAddresses: "gateway_addresses", KeyAddresses: "key_addresses", RouteAddresses: "route_addresses",
		AddressTaken: "address_taken", MaintenanceBegan: "maintenance_began",
		TokenRefused: "token_refused", KeyForToken: "key_for_token", TokensFailed: "tokens_failed", TokensBusy: "tokens_busy",
		DocumentMismatch: "schema_mismatch",
	}
	if int(r) >= len(names) {
		return ""
	}
	return names[r]
}
