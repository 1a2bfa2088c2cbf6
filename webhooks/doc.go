// Package webhooks is Berth's inbound HTTP: it tells that something happened
// at the forge, and serves health, readiness and metrics.
//
// A delivery is a hint and never data: all it can do is wake somebody who then
// reads Git and the forge himself. So a lost, repeated, reordered or replayed
// delivery changes nothing but the time it takes, and polling covers the rest.
// It is acknowledged once whoever takes it has it safe: webhooks/journal.
//
// Everything on this side of the signature is hostile. Nothing is parsed before
// it is proven to come from who holds the secret, nothing is read without a
// bound in bytes and in time, and no answer tells more than its code.
//
// The package must not know the loop, the schema, Git or what anybody does when
// woken. What is written to the forge is webhooks/github.
package webhooks
