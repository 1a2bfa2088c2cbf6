package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"berth/cmd/internal/cli"
	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/estate"
)

// resource is one document of the estate with what Berth recorded of it.
type resource struct {
	Key      schema.Key      `json:"key"`
	Name     string          `json:"name"` // with tenant, project and parent
	File     string          `json:"file,omitempty"`
	Invalid  bool            `json:"invalid,omitempty"`  // the document is not YAML
	Document json.RawMessage `json:"document,omitempty"` // absent: it was deleted, and the resource is not yet
	Status   *resourceStatus `json:"status,omitempty"`   // absent: nothing is recorded
	Held     []plan.Held     `json:"held,omitempty"`     // changes of it on main that are not in force
	UsedBy   []string        `json:"used_by,omitempty"`  // of a node: the instances with a member on it

	text string // of the document
}

// getReport is the JSON of `berth get`.
type getReport struct {
	Format string      `json:"format"` // berth.get/v1
	Kind   schema.Kind `json:"kind"`
	Source string      `json:"source"` // the estate that was read
	Items  []*resource `json:"items"`
}

// describeReport is the JSON of `berth describe`.
type describeReport struct {
	Format string       `json:"format"` // berth.describe/v1
	Source string       `json:"source"`
	Item   *resource    `json:"item"`
	Events []plan.Event `json:"events"` // the last of them, oldest first
}

// getSource is the part of the help of get and describe about their source.
const getSource = `The documents are those in force, the branch ` + reconciler.BranchInForce + ` as the repository has
it; where Berth has decided nothing yet, those of the work tree. The status is
that of the branch ` + reconciler.BranchStatus + `. Nothing is fetched.

KIND is singular or plural, in any case. NAME is the name with tenant and project,
as the list shows it, or the last part of it where only one has that.`

func newGetCmd() *cobra.Command {
	var req logRequest
	cmd := &cobra.Command{
		Use:   "get KIND [NAME]",
		Short: "List the resources of a kind with their status",
		Long: `List the documents of a kind, or one of them, with their status.

` + getSource + `

Exit status: 0, 1 there is none of that name, 2 usage.`,
		Example: `  berth get instances
  berth get node dev-gpu-1 -o json`,
		Args:              kindArgs(1, 2),
		ValidArgsFunction: completeResource(schema.Kind.Plural),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, err := parseKind(args[0])
			if err != nil {
				return err
			}
			e, err := req.estate(cmd.Context())
			if err != nil {
				return err
			}
			defer e.close()
			r := getReport{Format: "berth.get/v1", Kind: kind, Source: e.source, Items: []*resource{}}
			if len(args) == 2 {
				one, err := e.find(cmd.Context(), kind, args[1])
				if err != nil {
					return err
				}
				r.Items = append(r.Items, one)
			} else if r.Items, err = e.list(cmd.Context(), kind); err != nil {
				return err
			}
			if req.output == "json" {
				return cli.WriteJSON(cmd.OutOrStdout(), r)
			}
			if len(r.Items) == 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "There are no %s in %s.\n", kind.Plural(), e.source)
				return nil
			}
			return writeResources(cmd.OutOrStdout(), req.noHeaders, kind, r.Items)
		},
	}
	req.tableFlags(cmd)
	return cmd
}

func newDescribeCmd() *cobra.Command {
	var req logRequest
	cmd := &cobra.Command{
		Use:   "describe KIND NAME",
		Short: "Show one resource: its document, status, conditions and last events",
		Long: `Show one document with everything that Berth recorded of it: phase, members,
conditions, held changes and the last events.

` + getSource + `

Exit status: 0, 1 there is none of that name, 2 usage.`,
		Example:           `  berth describe instance physics.lattice/train`,
		Args:              kindArgs(2, 2),
		ValidArgsFunction: completeResource(func(k schema.Kind) string { return strings.ToLower(string(k)) }),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, err := parseKind(args[0])
			if err != nil {
				return err
			}
			e, err := req.estate(cmd.Context())
			if err != nil {
				return err
			}
			defer e.close()
			r := describeReport{Format: "berth.describe/v1", Source: e.source}
			if r.Item, err = e.find(cmd.Context(), kind, args[1]); err != nil {
				return err
			}
			r.Events = e.lastEvents(cmd.Context(), r.Item.Name)
			if req.output == "json" {
				return cli.WriteJSON(cmd.OutOrStdout(), r)
			}
			return r.text(cmd.OutOrStdout(), req.noHeaders)
		},
	}
	req.tableFlags(cmd)
	return cmd
}

// kindArgs requires KIND, and NAME unless it is optional.
func kindArgs(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return fmt.Errorf("%s: KIND is missing; choose one of %s", cmd.Name(), kindNames())
		case len(args) < least:
			return fmt.Errorf("%s: NAME is missing; berth get %s lists the names", cmd.Name(), args[0])
		case len(args) > most:
			return fmt.Errorf("%s: too many arguments; give KIND and one NAME", cmd.Name())
		}
		return nil
	}
}

// kindNames lists all kinds as get takes them.
func kindNames() string {
	var names []string
	for _, k := range schema.Kinds() {
		names = append(names, k.Plural())
	}
	return strings.Join(names, ", ")
}

// parseKind parses KIND. The error lists all kinds.
func parseKind(word string) (schema.Kind, error) {
	kind, ok := schema.ParseKind(word)
	if !ok {
		return "", cli.Usage(fmt.Errorf("unknown kind %q; choose one of %s", word, kindNames()))
	}
	return kind, nil
}

// estateView is an estate in force, or in a directory, with its status.
type estateView struct {
	source string // for people
	snap   schema.Snapshot
	files  map[schema.Key]schema.File
	status reconciler.StatusTree
	log    *estateLog // nil: no repository
}

func (e *estateView) close() {
	if e.log != nil {
		_ = e.log.Close() // it was opened for reading
	}
}

// estate reads the estate at hand. The caller closes it, unless there is an error.
func (r *logRequest) estate(ctx context.Context) (_ *estateView, err error) {
	e := &estateView{}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	e.log, err = r.openAny(ctx)
	explicit := r.repo != "" || r.config != "" || r.rev != ""
	if err != nil && (explicit || !errors.Is(err, reconciler.ErrNotFound)) {
		return nil, err
	}
	if err := e.snapshot(ctx, r); err != nil {
		return nil, cli.Usage(err)
	}
	if e.files, err = filesByKey(ctx, e.snap); err != nil {
		return nil, err
	}
	if e.log != nil && e.log.status != "" {
		if e.status, err = e.log.ReadStatus(ctx, e.log.status); err != nil {
			return nil, fmt.Errorf("%s: %w", reconciler.BranchStatus, err)
		}
	}
	return e, nil
}

// filesByKey returns the files at paths of documents, without reading them: documents
// in force are valid, and berth validate checks others.
func filesByKey(ctx context.Context, snap schema.Snapshot) (map[schema.Key]schema.File, error) {
	parts, err := snap.Parts(ctx)
	if err != nil {
		return nil, err
	}
	files := map[schema.Key]schema.File{}
	for _, p := range parts {
		if !p.Dir || p.Name != "platform" && !strings.HasPrefix(p.Name, "tenants/") {
			continue
		}
		of, err := snap.Files(ctx, p)
		if err != nil {
			return nil, err
		}
		for _, f := range of {
			if key, ok := schema.KeyAt(f.Path); ok {
				files[key] = f
			}
		}
	}
	return files, nil
}

// snapshot chooses the tree to read: berth/in-force; else, of a bare repository,
// main; else the directory.
func (e *estateView) snapshot(ctx context.Context, r *logRequest) (err error) {
	dir := ""
	if e.log != nil {
		if tip := e.log.tips.InForce; tip != "" {
			e.source = fmt.Sprintf("%s at %s", reconciler.BranchInForce, cli.ShortCommit(tip))
			e.snap, err = e.log.Snapshot(ctx, tip)
			return err
		}
		at, err := r.directory()
		if err != nil {
			return err
		}
		place, err := gitrepo.Locate(at)
		if err != nil {
			return err
		}
		if place.WorkTree == "" {
			tip := e.log.tips.Main
			if tip == "" {
				return fmt.Errorf("%s has neither %s nor main; run the command in a clone of the estate", place.GitDir, reconciler.BranchInForce)
			}
			e.source = "main at " + cli.ShortCommit(tip)
			e.snap, err = e.log.Snapshot(ctx, tip)
			return err
		}
		if at != "." {
			dir = place.WorkTree
		}
	}
	if dir == "" {
		if dir, err = estateRoot("."); err != nil {
			return err
		}
	}
	e.source = "the directory " + dir
	e.snap, err = estate.Dir(dir)
	return err
}

// list returns the resources of a kind, sorted by name: those with a document, and
// those that Berth recorded.
func (e *estateView) list(ctx context.Context, kind schema.Kind) ([]*resource, error) {
	byKey := map[schema.Key]*resource{}
	for key, f := range e.files {
		if key.Kind == kind {
			byKey[key] = &resource{Key: key, File: f.Path}
		}
	}
	recorded := func(key schema.Key, status resourceStatus) {
		if key.Kind != kind {
			return
		}
		if byKey[key] == nil {
			byKey[key] = &resource{Key: key}
		}
		byKey[key].Status = &status
	}
	for key, s := range e.status.Units.All() {
		recorded(key, unitStatus(s))
	}
	for key, s := range e.status.Things {
		recorded(key, thingStatus(s))
	}
	out := []*resource{}
	for key, r := range byKey {
		r.Name, r.Held = key.ResourceName(), heldOf(e.status.Revision.Held, key)
		if kind == schema.KindNode {
			r.UsedBy = e.usersOf(key.Name)
		}
		if err := e.document(ctx, r); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *resource) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// document reads the document of a resource.
func (e *estateView) document(ctx context.Context, r *resource) error {
	f, ok := e.files[r.Key]
	if !ok {
		return nil
	}
	data, _, err := e.snap.Read(ctx, f, 1<<20)
	if err != nil {
		return err
	}
	r.text = string(data)
	if doc, err := yaml.YAMLToJSON(data); err == nil {
		r.Document = doc
	} else {
		r.Invalid = true
	}
	return nil
}

// usersOf returns the instances with a member on a node, sorted.
func (e *estateView) usersOf(node string) []string {
	var users []string
	for key, s := range e.status.Units.All() {
		if slices.ContainsFunc(s.Members, func(m plan.MemberStatus) bool { return m.Node == node }) {
			users = append(users, key.ResourceName())
		}
	}
	slices.Sort(users)
	return users
}

// find returns the resource of a kind by its full name, or by its last part where
// that is unique.
func (e *estateView) find(ctx context.Context, kind schema.Kind, name string) (*resource, error) {
	all, err := e.list(ctx, kind)
	if err != nil {
		return nil, err
	}
	name = strings.TrimPrefix(name, "platform/")
	var alike []*resource
	var names []string
	for _, r := range all {
		if r.Name == name {
			return r, nil
		}
		if r.Key.Name == name {
			alike, names = append(alike, r), append(names, r.Name)
		}
	}
	switch len(alike) {
	case 1:
		return alike[0], nil
	case 0:
	default:
		return nil, cli.Usage(fmt.Errorf("%q names %d %s; choose one of %s", name, len(names), kind.Plural(), strings.Join(names, ", ")))
	}
	for _, h := range e.status.Revision.Held {
		if h.Key.Kind == kind && (h.Key.ResourceName() == name || h.Key.Name == name) {
			return nil, fmt.Errorf("%s is not in force; %s is held: %s: %s", h.Key, h.File, h.Why(), cli.Visible(h.Message))
		}
	}
	return nil, fmt.Errorf("%s %q not found in %s; berth get %s lists all", kind, name, e.source, kind.Plural())
}

const (
	maxEvents  = 10     // that describe shows
	maxScanned = 10_000 // that it reads for them
)

// lastEvents returns the newest events about a resource, oldest first.
func (e *estateView) lastEvents(ctx context.Context, name string) []plan.Event {
	events := []plan.Event{}
	if e.log == nil || e.log.status == "" {
		return events
	}
	scanned := 0
	for l, err := range e.log.Events(ctx, e.log.status, order(io.Discard, true)) {
		if scanned++; scanned > maxScanned || len(events) == maxEvents {
			break
		}
		if err == nil && payloadOf(l.Value).about() == name {
			events = append(events, l.Value)
		}
	}
	slices.Reverse(events)
	return events
}

// column is a column of a kind's table: its header, and its cell for a resource.
type column struct {
	header string
	cell   func(*resource) string
}

// documentField is a column with a field of the document.
func documentField(header string, path ...string) column {
	return column{header, func(r *resource) string {
		var value any
		_ = json.Unmarshal(r.Document, &value) // it was made from a value
		for _, step := range path {
			object, _ := value.(map[string]any)
			value = object[step]
		}
		return cellOf(value)
	}}
}

// cellOf is a value of a document in one cell.
func cellOf(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case []any:
		var parts []string
		for _, item := range v {
			if gpu, ok := item.(map[string]any); ok && gpu["type"] != nil {
				item = fmt.Sprintf("%v×%v", gpu["count"], gpu["type"])
			}
			parts = append(parts, cellOf(item))
		}
		return strings.Join(parts, ",")
	}
	return fmt.Sprint(value)
}

// columnsOf returns the columns of a kind's table after NAME.
func columnsOf(kind schema.Kind) []column {
	phase := column{"PHASE", func(r *resource) string {
		switch {
		case r.Status != nil:
			return r.Status.Phase
		case r.Invalid:
			return "invalid"
		}
		return ""
	}}
	ready := column{"READY", func(r *resource) string {
		if r.Status == nil {
			return ""
		}
		return r.Status.Ready
	}}
	of := func(f func(*resourceStatus) string) func(*resource) string {
		return func(r *resource) string {
			if r.Status == nil {
				return ""
			}
			return f(r.Status)
		}
	}
	file := column{"FILE", func(r *resource) string { return r.File }}
	switch kind {
	case schema.KindInstance:
		return []column{documentField("APP", "spec", "app"), documentField("VERSION", "spec", "version"), phase, ready, {"MEMBERS", of((*resourceStatus).members)}, {"NODES", of((*resourceStatus).nodes)}}
	case schema.KindNode:
		return []column{documentField("ADDRESS", "spec", "address"), documentField("REGION", "spec", "region"), documentField("SKU", "spec", "sku"), documentField("ROLES", "spec", "roles"),
			documentField("GPUS", "spec", "capacity", "gpus"), {"USED-BY", func(r *resource) string { return strings.Join(r.UsedBy, ",") }}}
	case schema.KindSharedRuntime:
		return []column{documentField("APP", "spec", "app"), documentField("VERSION", "spec", "version"), phase, ready, {"WHY", of(func(s *resourceStatus) string { return s.Why })}}
	case schema.KindAppVersion:
		return []column{documentField("VERSION", "spec", "version"), documentField("BACKEND", "spec", "runtime_backend"), documentField("STATUS", "spec", "status"), file}
	case schema.KindTenant, schema.KindProject, schema.KindApp:
		return []column{documentField("DISPLAY-NAME", "spec", "display_name"), file}
	case schema.KindArtifact, schema.KindAttachment, schema.KindContribution, schema.KindMemberOperation, schema.KindEntitlement:
		return []column{phase, ready, file}
	}
	return []column{file}
}

// writeResources writes the table of a kind.
func writeResources(w io.Writer, noHeaders bool, kind schema.Kind, items []*resource) error {
	columns := columnsOf(kind)
	headers := []string{"NAME"}
	for _, c := range columns {
		headers = append(headers, c.header)
	}
	t := cli.NewTable(w, noHeaders, headers...)
	for _, r := range items {
		cells := []string{r.Name}
		for _, c := range columns {
			cells = append(cells, c.cell(r))
		}
		if err := t.Row(cells...); err != nil {
			return err
		}
	}
	return t.Flush()
}

// text is the description for people.
func (r *describeReport) text(w io.Writer, noHeaders bool) error {
	var b strings.Builder
	item := r.Item
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", name, cli.Visible(fmt.Sprintf(format, args...)))
	}
	line("Name", "%s", item.Name)
	line("Kind", "%s", item.Key.Kind)
	line("Source", "%s", r.Source)
	if item.File != "" {
		line("File", "%s", item.File)
	} else {
		line("File", "none; the document is gone")
	}
	if item.Invalid {
		line("Invalid", "the document is not YAML; berth validate shows where")
	}
	if s := item.Status; s != nil {
		line("Status", "%s", s.line())
	} else {
		line("Status", "nothing recorded")
	}
	for _, h := range item.Held {
		line("Held", "%s (%s): %s", h.File, h.Why(), h.Message)
	}
	if len(item.UsedBy) > 0 {
		line("Used by", "%s", strings.Join(item.UsedBy, ", "))
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	members := cli.NewTable(w, noHeaders, "MEMBER", "NODE", "STATE", "WHY THERE")
	conditions := cli.NewTable(w, noHeaders, "CONDITION", "STATUS", "REASON", "MESSAGE")
	events := cli.NewTable(w, noHeaders, "TIME", "EVENT", "CORRELATION-ID", "REASON")
	var err error
	if s := item.Status; s != nil {
		for _, m := range s.Members {
			err = errors.Join(err, members.Row(m.Name, m.Node, string(m.State), m.Why))
		}
		for _, c := range s.Conditions {
			err = errors.Join(err, conditions.Row(c.Type, c.Status, c.Reason, c.Message))
		}
	}
	for _, e := range r.Events {
		err = errors.Join(err, events.Row(cli.Stamp(e.OccurredAt), e.EventType, e.CorrelationID, payloadOf(e).FailureReason))
	}
	if err = errors.Join(err, cli.WriteTables(w, members, conditions, events)); err != nil || item.text == "" {
		return err
	}
	var document strings.Builder
	document.WriteString("\nDocument\n")
	for text := range strings.Lines(item.text) {
		document.WriteString("  " + cli.Visible(strings.TrimRight(text, "\r\n")) + "\n")
	}
	_, err = io.WriteString(w, document.String())
	return err
}
