package boundary

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Contract names the text of the contract as version+digest. A QueueMap whose mode changes has it as
// spec.contract, so that its author and reviewers have this text before them (document CUT, AC-004).
func Contract() string {
	sum := sha256.Sum256([]byte(text()))
	return ContractVersion + "+" + hex.EncodeToString(sum[:6])
}

// Page is the page of the contract for people, in Markdown: its text and its digest. A change of the contract
// changes it in the same commit.
func Page() []byte {
	return fmt.Appendf([]byte(text()), `
## Digest

A pull request that changes the mode of a QueueMap sets %s to the line below. It is the version and the
digest of the text above.

%s
%s
%s
`, code("spec.contract"), "```", Contract(), "```")
}

func text() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Contract %s

How Berth resolves the queue that a person asks for to a partition, an account and a QoS of Slurm. The code makes this
page: %s writes it, and a test compares it.


## Modes

| Mode | Resolves by | Asks Slurm |
|---|---|---|
| %s | nothing: the requested queue is the partition | no |
| %s | the QueueMap in force for the project | no |
| %s | the same QueueMap, in the same way | yes: partition, account and QoS must exist |

The mode changes nothing else: the fields, the form of the idempotency key, the bound of retries and the errors are the
same in each.

## Answer

| Field | Type | Meaning |
|---|---|---|
`, ContractVersion, "`make reference`", code(string(Passthrough)), code(string(StubPolicy)), code(string(RealPolicy)))
	for _, f := range [][3]string{
		{"adapter", "string", "the mode"},
		{"contract_version", "string", ContractVersion},
		{"requested_queue", "string", "as the person wrote it; empty: the default"},
		{"resolved_queue", "string", "a queue of the map; in passthrough the requested one"},
		{"used_fallback", "boolean", "the map does not name the requested queue, and its fallback_queue is used"},
		{"mapping", "object or null", "null in passthrough"},
		{"queue", "string, in mapping", "the resolved queue"},
		{"partition", "string, in mapping", "partition of Slurm"},
		{"account", "string, in mapping", "account of Slurm; empty: that of the project"},
		{"qos", "string, in mapping", "QoS of Slurm; empty: the account's default"},
		{"max_walltime_minutes", "number, in mapping", "longest time limit of a job; 0: that of the partition"},
	} {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", code(f[0]), f[1], f[2])
	}
	fmt.Fprintf(&b, `
## Errors

An error never changes the queue: a request is resolved by the map, or it fails.

| Class | When | What to do |
|---|---|---|
| configuration error | no map, a queue without a partition, a wrong fallback_queue, an unknown mode, Slurm lacks the partition, account or QoS, or the runbook of real-policy is not published | the platform corrects the QueueMap |
| denied | the map has neither the queue nor a fallback, the name is malformed, or the time limit is too long | ask for another queue or less time |
| scheduler unavailable | Slurm does not answer; in real-policy also its credentials or its accounting | send the same request again |

An idempotency key has 1 to 64 letters, digits, dots, dashes or underscores. An adapter retries at most %d times by
itself; after that the caller sends the request again with the same key.

## Preconditions of %s

The mode serves only while each of these holds, with evidence:

`, MaxRetries, code(string(RealPolicy)))
	for i, p := range Preconditions() {
		fmt.Fprintf(&b, "%d. %s\n", i+1, p)
	}
	fmt.Fprintf(&b, `
%s shows them with their evidence, in each mode.

## Observability

Each submission, accepted or refused, each change of a mode, and the begin, end and expiry of a rollback is one line of
the log with these fields:

| Field | A submission | A change of a map |
|---|---|---|
`, code("berth queue readiness"))
	for _, f := range fieldTable() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", code(f.name), f.submission, f.change)
	}
	b.WriteString(`
A change of a map is one line and one event, also if the map serves many projects.
`)
	return b.String()
}

// field is one of the nine fields of CUT, with its value in a line about a submission and in one about a change
// of a map.
type field struct{ name, submission, change string }

func fieldTable() []field {
	return []field{
		{"trace_id", "W3C trace id of the correlation id", "of the commit that changed the map"},
		{"tenant_id", "tenant of the project", "the only tenant of applies_to, else empty"},
		{"workspace_id", "the project, as tenant.project", "the only project of applies_to, else empty"},
		{"job_id", "empty if the submission is refused", "empty"},
		{"slurm_adapter", "the mode", "the new mode; empty: the map is deleted"},
		{"slurm_contract_version", ContractVersion, ContractVersion},
		{"requested_queue_name", "as the person wrote it", "empty"},
		{"resolved_queue_name", "empty if the submission is refused", "empty"},
		{"used_fallback", "false if the submission is refused", "false"},
	}
}

func code(s string) string { return "`" + s + "`" }
