package decide

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/authority"
	"berth/schema/estate"
)

// Codes of findings of guards.
const (
	// CodeAuthority: who makes the change has not the right to.
	CodeAuthority = "authority.denied"
	// CodeProtected: the document says deletion_protection.
	CodeProtected = "deletion.protected"
	// CodeTooMany: more goes at once than may without an acknowledgement.
	CodeTooMany = "deletion.too-many"
	// CodeUnclear: what goes may be meant by a file that is no valid document.
	CodeUnclear = "identity.unclear"
)

// AckTrailer is the trailer of a commit that acknowledges a large deletion; its
// value is the deletion's digest.
const AckTrailer = "Berth-Ack-Delete"

// guard looks at a change as a whole, before any of it comes into force.
type guard struct {
	d            *Decider
	before, main *estate.Result
	changes      []schema.PathChange // from what is in force to main, sorted by path
	authored     map[string]subject  // who touched a path of them
	permitted    map[string]string   // what waited before and was permitted, by path: main's blob
	acks         []subject           // who acknowledges deletions
	trust        bool                // nobody's right is asked
	waits        map[string]bool     // paths that wait for somebody's all the same, unless somebody touched them
	acked        bool                // deletions of who touched a path are acknowledged
	were         map[string]string   // moves to other tenants that are held, by old file: new file

	vetoes    map[string]estate.Veto
	found     []schema.Diagnostic
	decisions map[string][]authority.Decision // by path

	unpermitted map[string]bool   // paths that nobody with the right changed
	moves       map[string]string // to other tenants, by one hand: old file → new file
}

// look fills vetoes, found and decisions. told says what a file of main seems to
// be meant to be.
func (g *guard) look(told func(schema.File) (estate.Told, error)) {
	g.vetoes, g.decisions, g.unpermitted = map[string]estate.Veto{}, map[string][]authority.Decision{}, map[string]bool{}
	g.authorise()
	g.protected()
	g.unclear(told)
	for _, rule := range g.d.o.Rules {
		for _, d := range rule(g.before.Desired, g.main.Desired) {
			if d.Severity == schema.SeverityError {
				g.refuse(d, estate.HeldDenied)
			} else {
				g.found = append(g.found, d)
			}
		}
	}
	g.moved()
	g.abroad(told)
	g.tooMany()
}

// refuse vetoes a changed path.
func (g *guard) refuse(d schema.Diagnostic, reason string) {
	if _, ok := slices.BinarySearchFunc(g.changes, d.File, func(c schema.PathChange, p string) int { return cmp.Compare(c.Path, p) }); !ok {
		return
	}
	if _, ok := g.vetoes[d.File]; !ok {
		g.vetoes[d.File] = estate.Veto{Reason: reason, Message: d.Message}
	}
	g.found = append(g.found, d)
}

func (g *guard) refusePath(path, code, reason, format string, args ...any) {
	g.refuse(schema.Diagnostic{Severity: schema.SeverityError, Code: code, File: path, Line: 1, Column: 1, Message: fmt.Sprintf(format, args...)}, reason)
}

// key is what a changed path declares, or declared; zero for no document.
func (g *guard) key(path string) schema.Key {
	if k := g.main.Key(path); !k.IsZero() {
		return k
	}
	return g.before.Key(path)
}

// author is who touched a path. Where a change names only a directory that it is
// in, as there was too much to list or nothing to compare with, somebody did and
// nobody knows who: not all that is there is of whoever touched it last.
func (g *guard) author(path string) (subject, bool) {
	if who, ok := g.authored[path]; ok {
		return who, true
	}
	for dir := range above(path) {
		if who, ok := g.authored[dir]; ok {
			return subject{commit: who.commit}, true
		}
	}
	return subject{}, false
}

// above are the directories that a path is in, the nearest first.
func above(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for cut := strings.LastIndexByte(path, '/'); cut >= 0; cut = strings.LastIndexByte(path, '/') {
			if path = path[:cut]; !yield(path) {
				return
			}
		}
	}
}

// waiting is what of a change is permitted and does not come into force: path →
// main's blob. Of a part that cannot be read it is what was known before.
func (g *guard) waiting(f *estate.Force) map[string]string {
	out := map[string]string{}
	for _, c := range g.changes {
		was, waited := g.permitted[c.Path]
		switch _, held := f.Replace[c.Path]; {
		case !held:
		case !g.unpermitted[c.Path]:
			out[c.Path] = c.To
		case waited: // who overwrites it without the right takes nothing from it
			out[c.Path] = was
		}
	}
	for path, blob := range f.Replace {
		if _, changed := slices.BinarySearchFunc(g.changes, path, func(c schema.PathChange, p string) int { return cmp.Compare(c.Path, p) }); changed {
			continue
		}
		if h := g.before.Desired.Header(g.before.Key(path)); h != nil && blob == "" {
			out[path] = h.Blob // it was in force, and gave way
		}
	}
	for path, blob := range g.permitted {
		if unread(f, path) {
			out[path] = blob
		}
	}
	if blob := g.brake(); blob != "" {
		out[pauseFile] = blob
	}
	return out
}

// unread says whether a path is in a part that cannot be read.
func unread(f *estate.Force, path string) bool {
	for dir := range above(path) {
		if _, ok := f.Replace[dir]; ok {
			return true
		}
	}
	return false
}

// authorise asks for the rights of who touched each path. What waited already,
// was permitted and was not touched waits on; what else differs from what is in
// force has nobody's right behind it, however it came to.
func (g *guard) authorise() {
	for _, c := range g.changes {
		who, touched := g.author(c.Path)
		blob, waited := g.permitted[c.Path]
		switch {
		case waited && blob == c.To: // permitted already, by the rules before it, and nobody with the right took it back
		case g.trust && (touched || !g.waits[c.Path]):
		case touched:
			ds := g.d.decisions(who, g.before.Desired, g.main.Desired, g.key(c.Path), c)
			g.decisions[c.Path] = ds
			if why, denied := denial(ds); denied {
				g.unpermitted[c.Path] = true
				g.refusePath(c.Path, CodeAuthority, estate.HeldUnauthorised, "%s", why)
			}
		default:
			g.unpermitted[c.Path] = true
			g.refusePath(c.Path, CodeAuthority, estate.HeldUnauthorised, "no user with the permission is known to have changed it; a user with the permission changes it again or comments /berth apply with the commit that changed it; a revert needs no permission")
		}
	}
}

// pairs are the documents that moved: by uid, one went from a path of the
// change and one of its kind came to another. Within a tenant only, so that none
// itself moves: a uid is no secret, and nobody's document may stop another
// tenant's deletion.
func (g *guard) pairs() map[string]string {
	type identity struct {
		kind   schema.Kind
		tenant string
		uid    string
	}
	id := func(r *estate.Result, path string) (identity, bool) {
		h := r.Desired.Header(r.Key(path))
		if h == nil || h.UID == "" {
			return identity{}, false
		}
		return identity{h.Key.Kind, owner(h.Key), h.UID}, true
	}
	gone := map[identity]string{}
	for _, c := range g.changes {
		if c.To == "" {
			if i, ok := id(g.before, c.Path); ok {
				gone[i] = c.Path
			}
		}
	}
	out := map[string]string{}
	for _, c := range g.changes {
		if c.From != "" {
			continue
		}
		if i, ok := id(g.main, c.Path); ok && gone[i] != "" {
			out[gone[i]] = c.Path
			delete(gone, i)
		}
	}
	return out
}

// moved keeps both ends of a move together: if one may not be, nor may the other.
func (g *guard) moved() {
	for from, to := range g.pairs() {
		for _, end := range [][2]string{{from, to}, {to, from}} {
			if v, ok := g.vetoes[end[0]]; ok {
				if _, ok := g.vetoes[end[1]]; !ok {
					g.vetoes[end[1]] = estate.Veto{Reason: estate.HeldNeeds, Message: fmt.Sprintf("it moves together with %s: %s", end[0], v.Message)}
				}
			}
		}
	}
}

// abroad keeps the old end of a move to another tenant, as when a tenant's
// directory is renamed, if one step did both ends and may do the old one: who
// deletes and carries away the uid in one go moves. That another tenant's people
// copy a uid stops no deletion: they cannot be in the step that makes it.
//
// A move that is held is remembered, whatever others make of either end, until
// the old one is back, or somebody who may delete it says that it is to go: by
// taking the uid away where it went to, or by deleting it once more.
func (g *guard) abroad(told func(schema.File) (estate.Told, error)) {
	g.moves = map[string]string{}
	keep := func(old, to, how string) {
		g.moves[old] = to
		what := to
		if key := g.main.Key(to); !key.IsZero() {
			what = key.String()
		}
		g.refusePath(old, CodeForeign, estate.HeldDenied, "by its uid it went to %s of another tenant, and what runs cannot be carried to another name; %s", what, how)
	}
	const (
		there = "move it back, or take the uid away there to have this one deleted and a new one made"
		lost  = "it is there no more, and nobody who may delete this one said that it is to go: put it back, and delete it then if that is meant"
	)
	ends := abroad(g.before.Desired, g.main.Desired)
	g.standless(ends, told)
	for _, old := range slices.Sorted(maps.Keys(g.were)) {
		to, was := g.were[old], g.before.Desired.Header(g.before.Key(old))
		_, back := g.main.File(old)
		if was == nil || back && !g.unpermitted[old] || !back && !g.oneHand(old, to) && g.mayDelete(old, old) {
			continue
		}
		next := slices.IndexFunc(ends[old], func(next string) bool { return g.oneHand(to, next) })
		switch {
		case g.bears(to, was.UID):
			keep(old, to, there)
			if back {
				g.refusePath(to, CodeForeign, estate.HeldDenied, "by its uid this is %s of another tenant, of which nobody with the right to said what becomes of it", was.Key)
			}
		case next >= 0: // whoever touched the one end made another
			keep(old, ends[old][next], there)
		case !g.mayDelete(to, old):
			keep(old, to, lost)
		}
	}
	for _, old := range slices.Sorted(maps.Keys(ends)) {
		for _, to := range ends[old] {
			if g.moves[old] == "" && !g.unpermitted[old] && g.oneHand(old, to) {
				keep(old, to, there)
			}
		}
	}
}

// standless adds to the ends of moves to other tenants what came with this step
// and does not stand, as it is wrong or waits for another: that may be mended.
func (g *guard) standless(ends map[string][]string, told func(schema.File) (estate.Told, error)) {
	var all []*schema.Instance
	from := map[string][]*schema.Instance{} // by uid in lower case, and by blob
	for _, i := range instances(g.before.Desired, g.main.Desired) {
		if g.touched(i.File) || g.were[i.File] != "" {
			uid := strings.ToLower(i.UID)
			all, from[uid], from[i.Blob] = append(all, i), append(from[uid], i), append(from[i.Blob], i)
		}
	}
	if len(all) == 0 {
		return
	}
	read := map[string]int{}
	for _, c := range g.changes {
		at, ok := siteOf(c.Path)
		if !ok || at.tenant == "" || c.From != "" || c.To == "" || !g.touched(c.Path) || g.main.Desired.Header(g.main.Key(c.Path)) != nil {
			continue
		}
		may, h := from[c.To], g.main.Right(c.Path)
		if h != nil {
			may = from[strings.ToLower(h.UID)]
		} else if f, ok := g.main.File(c.Path); ok {
			if read[at.tenant]++; read[at.tenant] <= maxRead {
				is, err := told(f)
				for _, uid := range is.UIDs {
					may = append(slices.Clip(may), from[uid]...)
				}
				if err != nil {
					may = all
				}
			}
		}
		for _, i := range may {
			if !strings.EqualFold(i.Key.Tenant, at.tenant) && (h == nil || h.UID == i.UID) {
				ends[i.File] = append(ends[i.File], c.Path)
			}
		}
	}
}

// bears says whether what stands at a path of main has a uid, or may have it: it
// cannot be told of what is wrong in itself, or in a part that cannot be read.
func (g *guard) bears(path, uid string) bool {
	if h := g.main.Right(path); h != nil {
		return h.UID == uid
	}
	_, there := g.main.File(path)
	return there || slices.ContainsFunc(g.main.Unreadable, func(part string) bool { return strings.HasPrefix(path, part+"/") })
}

// mayDelete says whether who touched a path may delete an instance in force.
func (g *guard) mayDelete(path, old string) bool {
	who, touched := g.author(path)
	if !touched || g.trust {
		return touched
	}
	key := g.before.Key(old)
	_, denied := denial(g.d.decisions(who, g.before.Desired, nil, key, schema.PathChange{Path: old, From: g.before.Desired.Header(key).Blob}))
	return !denied
}

// oneHand says whether one step touched both paths.
func (g *guard) oneHand(a, b string) bool {
	one, touched := g.author(a)
	other, too := g.author(b)
	return touched && too && one.commit == other.commit
}

// replaced says whether a document that stays means another thing than before:
// another uid, or another app. Then one goes and another comes.
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
		return g.before.Desired.SharedRuntime(key.Tenant, key.Name).Runtime.Spec.App != g.main.Desired.SharedRuntime(key.Tenant, key.Name).Runtime.Spec.App
	}
	return false
}

// protected keeps what says deletion_protection.
func (g *guard) protected() {
	for _, c := range g.changes {
		key := g.before.Key(c.Path)
		if c.To != "" && !g.replaced(key) {
			continue
		}
		was := false
		switch key.Kind {
		case schema.KindInstance:
			i := g.before.Desired.Instance(key)
			was = i != nil && i.Spec.DeletionProtection
		case schema.KindSharedRuntime:
			s := g.before.Desired.SharedRuntime(key.Tenant, key.Name)
			was = s != nil && s.Runtime != nil && s.Runtime.Spec.DeletionProtection
		}
		if was {
			g.refusePath(c.Path, CodeProtected, estate.HeldDenied, "%s says deletion_protection: true; set it to false in a change of its own first, then delete it", key)
		}
	}
}

// maxDeletions is how many documents of one tenant, or of the platform, may go
// in one commit without an acknowledgement, of so many in force.
func maxDeletions(inForce int) int { return max(MinDeletions, inForce/10) }

// MinDeletions are so few that nobody has to acknowledge them.
const MinDeletions = 5

// tooMany keeps deletions of a tenant that are more than may go at once, or that
// take away the tenant with what runs there, unless
// they are acknowledged: just these, by somebody who may.
func (g *guard) tooMany() {
	moves := g.pairs()
	gone := map[string][]schema.PathChange{} // by tenant; "" is the platform
	for _, c := range g.changes {
		k := g.before.Key(c.Path)
		document := !k.IsZero()
		if _, held := g.vetoes[c.Path]; c.To != "" || !document || held || moves[c.Path] != "" || k.Kind == schema.KindMemberOperation {
			continue
		}
		gone[owner(k)] = append(gone[owner(k)], c)
	}
	for _, tenant := range slices.Sorted(maps.Keys(gone)) {
		n, ends := len(gone[tenant]), g.ends(tenant, gone[tenant])
		if n <= maxDeletions(0) && !ends {
			continue
		}
		all := g.before.Count(tenant)
		if n <= maxDeletions(all) && !ends {
			continue
		}
		digest := deletionDigest(gone[tenant])
		if g.acknowledged(tenant, digest) {
			continue
		}
		what := fmt.Sprintf("%d of the platform's %d documents would go at once, more than %d", n, all, maxDeletions(all))
		switch {
		case ends:
			what = fmt.Sprintf("the tenant %s would go and all that runs there with it, %d of its %d documents", tenant, n, all)
		case tenant != "":
			what = fmt.Sprintf("%d of %s's %d documents would go at once, more than %d", n, tenant, all, maxDeletions(all))
		}
		for _, c := range gone[tenant] {
			if _, touched := g.author(c.Path); touched && g.acked {
				continue
			}
			if who, ok := g.mayRelease(c.Path); ok && g.d.may(who, g.before.Desired, authority.DeletionsAcknowledge, authority.Scope{Tenant: tenant}) {
				continue
			}
			g.refusePath(c.Path, CodeTooMany, estate.HeldBlocked,
				"%s: to confirm it, a user with deletions.acknowledge comments /berth ack-delete %s on the pull request, or commits with the trailer %s: %s",
				what, digest, AckTrailer, digest)
		}
	}
}

// ends says whether deletions take away a tenant that something runs for. That is
// large however few documents it has.
func (g *guard) ends(tenant string, gone []schema.PathChange) bool {
	t := g.before.Desired.Tenants[tenant]
	if t == nil || !slices.ContainsFunc(gone, func(c schema.PathChange) bool { return g.before.Key(c.Path).Kind == schema.KindTenant }) {
		return false
	}
	for _, p := range t.Projects {
		if len(p.Instances) > 0 {
			return true
		}
	}
	return len(t.SharedRuntimes) > 0
}

func owner(k schema.Key) string {
	if k.Kind == schema.KindTenant {
		return k.Name
	}
	return k.Tenant
}

func (g *guard) acknowledged(tenant, digest string) bool {
	return slices.ContainsFunc(g.acks, func(s subject) bool {
		return slices.Contains(s.acks, digest) && (g.trust || g.d.may(s, g.before.Desired, "deletions.acknowledge", authority.Scope{Tenant: tenant}))
	})
}

// deletionDigest names a set of deletions: which files, and as they were.
func deletionDigest(cs []schema.PathChange) string {
	h := sha256.New()
	for _, c := range cs {
		fmt.Fprintf(h, "%s\x00%s\n", c.Path, strings.ToLower(c.From))
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}
