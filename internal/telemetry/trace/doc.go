// Package trace exports the requests of the data plane as spans to an OpenTelemetry
// collector, if the environment asks for it (OTEL_*).
//
// The request path only reads the traceparent header of the request and writes the one
// for the upstream (Begin, Append). The span is made later from the access record. Its identifier
// derives from the identifier of the request:
//
//	caller ── traceparent ─► Begin ─► record ─► Append ── traceparent ─► upstream
//	                                    │
//	                                    ▼ Take
//	                                  queue ─► batch ─► POST /v1/traces
package trace
