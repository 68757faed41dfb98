package main

import (
	"fmt"
	"strings"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

// errorReference returns docs/errors.md.
func errorReference() string {
	var b strings.Builder
	b.WriteString(`# Errors

<!-- Made by make generate from internal/fault and internal/ratelimit. -->

An error is JSON, from a gateway as from the management API. ` + "`error`" + ` is a code for programs,
` + "`message`" + ` says what to do, and ` + "`request_id`" + ` finds the request: ` + "`keygate explain REQUEST_ID`" + `
says why a gateway refused it.

A gateway's ` + "`error_format`" + ` gives its own errors another form, with the same statuses and headers:
` + "`openai`" + ` has ` + "`{\"error\": {\"message\", \"type\", \"code\", \"param\"}}`" + `, where ` + "`code`" + ` is the ` + "`code`" + ` or
` + "`error`" + ` of this page; ` + "`problem`" + ` is RFC 9457 (` + "`application/problem+json`" + `), with ` + "`detail`" + ` for the message and
the other fields of this page.

## error

| Status | ` + "`error`" + ` | From | Meaning | What to do |
|---|---|---|---|---|
`)
	for _, e := range fault.Codes() {
		fmt.Fprintf(&b, "| %d | `%s` | %s | %s | %s |\n", e.Status, e.Code, planes(e), e.Meaning, e.Remedy)
	}
	b.WriteString("\n## code\n\nA 401 and a 403 have a `code`.\n\n| Status | `code` | Meaning | What to do |\n|---|---|---|---|\n")
	for _, e := range fault.AuthCodes() {
		fmt.Fprintf(&b, "| %d | `%s` | %s | %s |\n", e.Status, e.Code, e.Meaning, e.Remedy)
	}
	b.WriteString("\n## limit_scope\n\nA 429 has the `limit` that refused, `remaining`, `reset_at`, and its `limit_scope`.\n\n| `limit_scope` | From | Meaning | For more |\n|---|---|---|---|\n")
	for _, e := range ratelimit.ScopeReference() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", e.Code, planes(e), e.Meaning, e.Remedy)
	}
	return b.String()
}

func planes(e fault.Explanation) string {
	switch {
	case e.Data && e.Management:
		return "both"
	case e.Data:
		return "gateway"
	default:
		return "management"
	}
}
