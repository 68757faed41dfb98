// Package client is a Go client for Keygate's management API (contract, section
// 3).
//
//	c, err := client.New(client.Config{URL: "http://127.0.0.1:8081", Key: os.Getenv("KEYGATE_API_KEY")})
//	…
//	key, err := c.CreateKey(ctx, client.CreateKeyRequest{Name: "mobile app", Scope: "read"})
//	for k, err := range c.Keys(ctx, client.KeyFilter{State: "active"}) { … }
//
// # Errors
//
// Every method that calls the server returns an *Error if the response is an
// error (contract, section 2), and an *UnreachableError if there was no complete
// response. Use errors.As to find them. Some errors are common to all methods:
//
//   - 401, Code "unauthorized": the key is missing, invalid or expired; see
//     Error.AuthCode.
//   - 403, Code "forbidden": the scope of the key does not allow the call. Get
//     calls and lists need the scope read, calls that create or change need write,
//     and calls that delete or revoke need admin, unless the method says otherwise.
//   - 404, Code "not_found": the account has no such record; see IsNotFound.
//   - 422, Code "validation_failed": a field or parameter is invalid; Error.Field
//     names it.
//   - 429, Code "rate_limit_exceeded": the key made too many calls; see
//     Error.RetryAfter.
//
// The comment of a method names the other errors to expect.
//
// # Lists
//
// A method that returns an iter.Seq2 reads the list page by page while the caller
// iterates. An error ends the iteration: it is the last pair, with the zero record.
//
// # Retries
//
// A call whose connection fails is retried if that cannot execute it twice; see
// Config.Retries.
//
// Most of the records are generated from the OpenAPI document, api/openapi.yaml.
package client
