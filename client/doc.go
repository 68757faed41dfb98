// Package client calls Keygate's management API.
//
//	c, err := client.New(client.Config{URL: "http://127.0.0.1:8081", Key: os.Getenv("KEYGATE_API_KEY")})
//	…
//	key, err := c.CreateKey(ctx, client.CreateKeyRequest{Name: "mobile app", Scope: "read"})
//	for k, err := range c.Keys(ctx, client.KeyFilter{State: "active"}) { … }
//
// The records are generated from the API document, api/openapi.yaml. Every
// method returns an *Error for what the server refuses and an
// *UnreachableError if there was no answer; find them with errors.As.
package client
