// Package webhooks is Berth's inbound HTTP: it receives the deliveries of forges,
// and serves health, readiness and metrics.
//
// A delivery is a hint, never data: it only causes a reconciliation, which reads
// Git and the forge itself. A lost, repeated, reordered or replayed delivery
// changes nothing but the time it takes; polling covers the rest. A delivery is
// acknowledged once its receiver has stored it (package webhooks/journal).
//
// Everything before the signature is hostile. Nothing is parsed before its
// signature is verified, every read is bounded in bytes and in time, and an answer
// is a bare status code.
//
// The package must not know a particular forge (webhooks/forge defines a forge, and
// webhooks/github is GitHub), the loop, the schema or Git.
package webhooks
