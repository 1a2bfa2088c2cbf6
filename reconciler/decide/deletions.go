package decide

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/authority"
	"berth/schema/estate"
)

// The rule for deletions. A deletion of a guarded kind (schema.Kind.GuardsDeletion)
// comes into force with its own merge, if every file that the merge leaves in the
// tenant tree passes the gate; isStrangers says which files do not count. Otherwise, and if a merge deletes a tenant or much of
// one, it is a blocked deletion: it never comes into force with another merge, but
// by /berth apply COMMIT in a valid tree or by an acknowledgement of exactly the
// blocked documents. The deletion of a grant waits for no other file.

const (
	// CodeProtected is the code of the finding that a document sets
	// deletion_protection.
	CodeProtected = "deletion.protected"
	// CodeTooMany is the code of the finding that a deletion takes an acknowledgement:
	// it is large, or takes a tenant as a whole.
	CodeTooMany = "deletion.too-many"
	// CodeBlocked is the code of the finding that a deletion is blocked by invalid
	// files of its tree, or did not come into force with its own merge.
	CodeBlocked = "deletion.blocked"
)

// AckTrailer is the trailer of a commit that acknowledges a blocked deletion. Its
// value is the digest of the deletion.
const AckTrailer = "Berth-Ack-Delete"

// MinDeletions is how many documents of a tree a merge may always delete without an
// acknowledgement.
const MinDeletions = 5

// maxDeletions is how many documents of a tree a merge may delete without an
// acknowledgement, of so many in force.
func maxDeletions(inForce int) int { return max(MinDeletions, inForce/10) }

// A message names at most maxFailing failing files, each by at most maxFile bytes.
const (
	maxFailing = 3
	maxFile    = 120
)

// protect holds the deletion and replacement of documents with deletion_protection.
func (g *guard) protect() {
	for _, c := range g.changes {
		key := g.before.Key(c.Path)
		if c.To != "" && !g.replaced(key) {
			continue
		}
		protected := false
		switch key.Kind {
		case schema.KindInstance:
			i := g.before.Desired.Instance(key)
			protected = i != nil && i.Spec.DeletionProtection
		case schema.KindSharedRuntime:
			s := g.before.Desired.SharedRuntime(key.Tenant, key.Name)
			protected = s != nil && s.Runtime != nil && s.Runtime.Spec.DeletionProtection
		}
		switch {
		case protected && c.To != "":
			g.refusePath(c.Path, CodeProtected, schema.HeldDenied,
				"%s sets deletion_protection: true, and the change of uid or app would delete this unit and create a new one: undo it, "+
					"or set deletion_protection to false in a change of its own first", key)
		case protected:
			g.refusePath(c.Path, CodeProtected, schema.HeldDenied,
				"%s sets deletion_protection: true; set it to false in a change of its own first, then delete it", key)
		}
	}
}

// replaced returns true if a remaining document declares another unit than before:
// with another uid or another app.
func (g *guard) replaced(key schema.Key) bool {
	a, b := g.before.Desired.Header(key), g.main.Desired.Header(key)
	if a == nil || b == nil {
		return false
	}
	if a.UID != b.UID && a.UID != "" {
		return true
	}
	switch key.Kind {
	case schema.KindInstance:
		return g.before.Desired.Instance(key).Spec.App != g.main.Desired.Instance(key).Spec.App
	case schema.KindSharedRuntime:
		return g.before.Desired.SharedRuntime(key.Tenant, key.Name).Runtime.Spec.App != g.main.Desired.SharedRuntime(key.Tenant,
			key.Name).Runtime.Spec.App
	}
	return false
}

// deletion is the deletion of documents in a tree by one step, or by earlier steps
// that is still held.
type deletion struct {
	tenant  string              // "": of platform/
	own     bool                // by this step
	changes []schema.PathChange // sorted by path
}

// deletions are the deletions that no other rule holds.
func (g *guard) deletions() []*deletion {
	type group struct {
		tenant string
		own    bool
	}
	of := map[group]*deletion{}
	var all []*deletion
	for _, c := range g.changes {
		key := g.before.Key(c.Path)
		_, held := g.vetoes[c.Path]
		if c.To != "" || key.IsZero() || held || g.moves[c.Path] != "" || key.Kind == schema.KindMemberOperation {
			continue
		}
		by, touched := g.author(c.Path)
		in := group{tree(key), touched && by.commit == g.commit}
		if of[in] == nil {
			of[in] = &deletion{tenant: in.tenant, own: in.own}
			all = append(all, of[in])
		}
		of[in].changes = append(of[in].changes, c)
	}
	return all
}

// blockDeletions holds the deletions that take more than this step.
func (g *guard) blockDeletions() {
	for _, d := range g.deletions() {
		blocked, code, why, final := g.blocked(d)
		if len(blocked) == 0 || !final && d.own && g.acked {
			continue
		}
		digest := ""
		if !final {
			digest = deletionDigest(blocked)
			if g.acknowledged(d.tenant, digest) {
				continue
			}
			why += fmt.Sprintf(". To confirm it as it is, a user with deletions.acknowledge comments /berth ack-delete %s on the pull "+
				"request, or commits with the trailer %s: %s", digest, AckTrailer, digest)
		}
		for _, c := range blocked {
			g.refuse(c.Path, code, estate.Veto{Reason: schema.HeldBlocked, Message: why, Ack: digest})
		}
	}
}

// blocked returns the blocked part of a deletion and the reason. It is final if no
// acknowledgement releases it.
func (g *guard) blocked(d *deletion) (blocked []schema.PathChange, code, why string, final bool) {
	name, failing, readable := "tenants/"+d.tenant, []string(nil), false
	if d.tenant == "" {
		name = "platform"
		if failing, readable = g.main.Failing(name); !readable {
			return d.changes, CodeBlocked, "blocked deletion: platform/ is missing", true
		}
	} else {
		failing, _ = g.main.Failing(name)
		if file := name + "/tenant.yaml"; g.main.Key(file).IsZero() && !g.isStrangers(file, d.changes) {
			failing = append([]string{file + " (missing)"}, failing...)
		}
	}
	failing = slices.DeleteFunc(failing, func(path string) bool { return g.isStrangers(path, d.changes) })
	whole := d.tenant != "" && slices.ContainsFunc(d.changes,
		func(c schema.PathChange) bool { return g.before.Key(c.Path).Kind == schema.KindTenant })
	n, inForce := len(d.changes), g.before.Count(d.tenant)
	large := n > maxDeletions(0) && n > maxDeletions(inForce)
	switch {
	case whole:
		return d.changes, CodeTooMany,
			fmt.Sprintf("the tenant %s would be deleted as a whole, %d of its %d documents", d.tenant, n, inForce), false
	case large && (len(failing) > 0 || !g.mayApply(d)):
		why = fmt.Sprintf("%d of the %d documents of %s/ would be deleted at once, more than %d", n, inForce, name, maxDeletions(inForce))
		return d.changes, CodeTooMany, why + fix(failing), false
	case d.own && len(failing) == 0:
		return nil, "", "", false
	}
	blocked = slices.DeleteFunc(slices.Clone(d.changes),
		func(c schema.PathChange) bool { return !g.before.Key(c.Path).Kind.GuardsDeletion() })
	if d.own {
		return blocked, CodeBlocked, "blocked deletion" + fix(failing), false
	}
	return blocked, CodeBlocked, "blocked deletion: it did not come into force with its own merge; comment /berth apply with the commit " +
		"of that merge" + fix(failing), false
}

// isStrangers returns true if only users without the permission changed a file, each in another
// commit than those of the deletion. Such a file says nothing about the deletion: every user can add
// one to any tree.
func (g *guard) isStrangers(path string, deleted []schema.PathChange) bool {
	who, _ := g.author(path)
	return g.unpermitted[path] && g.permitted[path] == "" && !slices.ContainsFunc(deleted, func(c schema.PathChange) bool {
		by, touched := g.author(c.Path)
		return touched && by.commit == who.commit
	})
}

// mayApply returns true if a command deletes, and its user may acknowledge deletions.
func (g *guard) mayApply(d *deletion) bool {
	who, _ := g.author(d.changes[0].Path)
	return who.applies != nil && g.d.Permissions().may(who, g.before.Desired, authority.DeletionsAcknowledge,
		authority.Scope{Tenant: d.tenant})
}

// fix lists the files of a tree that have to be fixed; "" for none.
func fix(failing []string) string {
	if len(failing) == 0 {
		return ""
	}
	var named []string
	for _, file := range failing[:min(len(failing), maxFailing)] {
		if len(file) > maxFile {
			file = strings.ToValidUTF8(file[:maxFile], "") + "…"
		}
		named = append(named, file)
	}
	names := strings.Join(named, ", ")
	if more := len(failing) - maxFailing; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return ": files of the same tree do not pass the checks: " + names +
		"; fix them before the merge, or fix them later and comment /berth apply with the commit of the merge"
}

// acknowledged returns true if a user with the permission acknowledged a deletion.
func (g *guard) acknowledged(tenant, digest string) bool {
	return slices.ContainsFunc(g.acks, func(s subject) bool {
		return slices.Contains(s.acks, digest) &&
			(g.trust || g.d.Permissions().may(s, g.before.Desired, authority.DeletionsAcknowledge, authority.Scope{Tenant: tenant}))
	})
}

// deletionDigest identifies a set of deletions: the files and their content in force.
func deletionDigest(cs []schema.PathChange) string {
	h := sha256.New()
	for _, c := range cs {
		fmt.Fprintf(h, "%s\x00%s\n", c.Path, strings.ToLower(c.From))
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}
