package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Elsewhere has what people type who know other tools, with what to use instead.
type Elsewhere struct {
	// Commands has words for each unknown command, such as "apply" or "queue rm".
	Commands map[string]string
	// Flags has, for an unknown flag such as --namespace or -n, flags of this program, such as
	// --project or --output json. The one that the command has is suggested. The last entry may be
	// words for commands that have none of them. A key with a command, such as "init --force", is for that command.
	Flags map[string][]string
	// Arguments has words for a command that got an argument too many, by command; %s is that argument.
	Arguments map[string]string
	// Nearest returns the name that a misspelt word is meant for, or "".
	Nearest func(word string, names []string) string
}

// NameArguments gives a command and its subcommands errors for people. A wrong number of arguments
// names the argument, in the words of Use, and shows the first example. An unknown command or flag gets
// a suggestion. An empty argument or flag is an error: a script whose variable is not set would get
// another answer than it asked for.
func NameArguments(root *cobra.Command, elsewhere Elsewhere) {
	if !root.HasParent() {
		root.InitDefaultCompletionCmd()
		root.SetHelpCommand(helpCommand(root, elsewhere))
	}
	for _, cmd := range root.Commands() {
		NameArguments(cmd, elsewhere)
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		word := cmd.Flags().Arg(0)
		if word != "" && (IsGroup(cmd) || cmd.HasSubCommands() && elsewhere.similar(cmd, word) != "") {
			return Usage(unknownCommand(cmd, word, elsewhere)) // an unknown command has unknown flags
		}
		return wrongFlag(cmd, err, elsewhere)
	})
	if root.HasSubCommands() && !root.Runnable() {
		root.Annotations, root.DisableFlagsInUseLine = map[string]string{group: ""}, true
		root.Args = cobra.ArbitraryArgs
		root.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return Usage(unknownCommand(cmd, args[0], elsewhere))
		}
		return
	}
	if root.Args != nil {
		root.Args = explained(root.Args, elsewhere)
	}
}

// explained returns check with errors for people, which also refuses empty arguments.
func explained(check cobra.PositionalArgs, elsewhere Elsewhere) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		var ours *ExitError // with words of its own
		switch {
		case err == nil:
			return emptyWords(cmd, args)
		case errors.As(err, &ours):
			return err
		}
		return wrongArguments(cmd, args, check, err, elsewhere)
	}
}

// emptyWords is an error for empty arguments and flags, and for durations below zero.
func emptyWords(cmd *cobra.Command, args []string) error {
	var errs []error
	if i := slices.Index(args, ""); i >= 0 {
		errs = append(errs, fmt.Errorf("%s: argument %d is empty: give a value, or leave it out", nameOf(cmd), i+1))
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch {
		case f.Value.Type() == "string" && f.Value.String() == "" && f.Annotations[mayBeEmpty] == nil:
			errs = append(errs, fmt.Errorf("%s: --%s is empty: give a value, or leave the flag out", nameOf(cmd), f.Name))
		case f.Value.Type() == "duration" && strings.HasPrefix(f.Value.String(), "-"):
			errs = append(errs, fmt.Errorf("%s: --%s: %s is below zero: write one such as 90s, 10m or 1h30m", nameOf(cmd), f.Name, f.Value))
		}
	})
	if len(errs) == 0 {
		return nil
	}
	return Usage(errors.Join(errs...))
}

// mayBeEmpty is the annotation of AllowEmpty.
const mayBeEmpty = "may-be-empty"

// AllowEmpty allows an empty value of a flag, which is as if it were left out.
func AllowEmpty(cmd *cobra.Command, flag string) {
	_ = cmd.Flags().SetAnnotation(flag, mayBeEmpty, []string{}) // the flag is there
}

// nameOf is the name of a command without that of the program, such as queue list.
func nameOf(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// WrapHelp wraps the flags in the help of a command and its subcommands.
func WrapHelp(root *cobra.Command) {
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), "FlagUsages ", fmt.Sprintf("FlagUsagesWrapped %d ", helpWidth)))
}

// helpWidth is the width of the text of help.
const helpWidth = 80

// helpCommand is the help command of cobra, with an error for an unknown command.
func helpCommand(root *cobra.Command, elsewhere Elsewhere) *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Show the help of a command",
		Long:    "Show the help of a command.",
		Example: "  " + root.Name() + " help plan",
		RunE: func(cmd *cobra.Command, args []string) error {
			at, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 && (at.HasSubCommands() || at == root) {
				return Usage(unknownCommand(at, append(rest, "")[0], elsewhere))
			}
			return at.Help()
		},
	}
}

const group = "group"

// IsGroup reports whether a command only holds subcommands.
func IsGroup(cmd *cobra.Command) bool {
	_, is := cmd.Annotations[group]
	return is
}

// unknownCommand is the error for an unknown subcommand of cmd.
func unknownCommand(cmd *cobra.Command, word string, elsewhere Elsewhere) error {
	path := func(name string) string { return strings.TrimPrefix(cmd.CommandPath()+" "+name, cmd.Root().Name()+" ") }
	if instead, known := elsewhere.Commands[path(word)]; known {
		return fmt.Errorf("unknown command %q: %s", word, instead)
	}
	if like := elsewhere.similar(cmd, word); like != "" {
		return fmt.Errorf("unknown command %q: did you mean %q?", word, path(like))
	}
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return fmt.Errorf("unknown command %q: %s has %s", word, cmd.CommandPath(), strings.Join(names, ", "))
}

// similar is the name of the subcommand that a word is meant for, or "".
func (e Elsewhere) similar(cmd *cobra.Command, word string) string {
	var names []string
	for _, sub := range cmd.Commands() {
		if slices.Contains(sub.SuggestFor, word) { // before a command whose name is similar
			return sub.Name()
		}
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return e.nearest(word, names)
}

// nearest is the name that a word begins, or that it is like, or "".
func (e Elsewhere) nearest(word string, names []string) string {
	if i := slices.IndexFunc(names, func(n string) bool { return len(word) > 1 && strings.HasPrefix(n, word) }); i >= 0 {
		return names[i]
	}
	return e.Nearest(word, names)
}

// wrongFlag is the error for a flag that there is not, or that has a wrong value.
func wrongFlag(cmd *cobra.Command, err error, elsewhere Elsewhere) error {
	var value *pflag.InvalidValueError
	if !errors.As(err, &value) {
		return unknownFlag(cmd, err, elsewhere)
	}
	flag, got := "--"+value.GetFlag().Name, value.GetValue()
	if word, _, _ := strings.Cut(value.GetFlag().Shorthand+got, "="); value.GetFlag().Shorthand != "" && (cmd.Flags().Lookup(word) != nil ||
		elsewhere.Flags["--"+word] != nil || elsewhere.Flags[nameOf(cmd)+" --"+word] != nil) {
		return singleDash(cmd, word, elsewhere) // such as -out, which is read as -o ut
	}
	switch value.GetFlag().Value.Type() {
	case "int", "uint", "int64":
		return fmt.Errorf("%s: %q is not a whole number", flag, got)
	case "duration":
		if _, err := strconv.Atoi(got); err == nil {
			return fmt.Errorf("%s: %s has no unit: write %ss, %sm or %sh", flag, got, got, got, got)
		}
		return fmt.Errorf("%s: %q is not a duration: write one such as 90s, 10m or 1h30m", flag, got)
	case "stringToString":
		form, what, hasForm := strings.Cut(value.GetFlag().Usage, ": ") // such as NAME=DIR: a directory
		if !hasForm {
			return fmt.Errorf("%s: %q is not NAME=VALUE", flag, got)
		}
		return fmt.Errorf("%s: %q is not %s, %s", flag, got, form, what)
	case "bool":
		return fmt.Errorf("%s: %q is neither true nor false", flag, got)
	}
	return fmt.Errorf("%s: %w", flag, errors.Unwrap(value))
}

// unknownFlag adds to the error of an unknown flag the one that is meant, or those that there are.
func unknownFlag(cmd *cobra.Command, err error, elsewhere Elsewhere) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	name, isLong := "-"+unknown.GetSpecifiedName(), unknown.GetSpecifiedShortnames() == ""
	if word, _, _ := strings.Cut(unknown.GetSpecifiedShortnames(), "="); len(word) > 2 {
		return singleDash(cmd, word, elsewhere)
	}
	if isLong {
		name = "-" + name
	}
	return meantFlag(cmd, err, name, isLong, elsewhere)
}

// singleDash is the error for a long flag with a single dash, as in Terraform.
func singleDash(cmd *cobra.Command, word string, elsewhere Elsewhere) error {
	err := fmt.Errorf("unknown flag: -%s: a flag of several letters begins with two dashes", word)
	if cmd.Flags().Lookup(word) != nil {
		return fmt.Errorf("%w: --%s", err, word)
	}
	return meantFlag(cmd, err, "--"+word, true, elsewhere)
}

// meantFlag adds to the error of an unknown flag the one that is meant, or those that there are.
func meantFlag(cmd *cobra.Command, err error, name string, isLong bool, elsewhere Elsewhere) error {
	for _, instead := range slices.Concat(elsewhere.Flags[nameOf(cmd)+" "+name], elsewhere.Flags[name]) {
		flag, _, _ := strings.Cut(strings.TrimPrefix(instead, "--"), " ")
		if flag == instead || !strings.HasPrefix(instead, "--") {
			return fmt.Errorf("%w: %s", err, instead)
		}
		if cmd.Flags().Lookup(flag) != nil {
			return fmt.Errorf("%w: did you mean %s?", err, instead)
		}
	}
	names := flagNames(cmd)
	for i, n := range names {
		names[i] = strings.TrimPrefix(n, "--")
	}
	if like := elsewhere.nearest(strings.TrimPrefix(name, "--"), names); isLong && like != "" {
		return fmt.Errorf("%w: did you mean --%s?", err, like)
	}
	return fmt.Errorf("%w: %s", err, flagsOf(cmd))
}

// flagsOf lists the flags of a command in a sentence.
func flagsOf(cmd *cobra.Command) string {
	names := flagNames(cmd)
	if len(names) == 0 {
		return cmd.CommandPath() + " has no flags"
	}
	return cmd.CommandPath() + " has " + strings.Join(names, ", ")
}

// flagNames are the flags of a command, such as --repo.
func flagNames(cmd *cobra.Command) (names []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" {
			names = append(names, "--"+f.Name)
		}
	})
	return names
}

// wrongArguments is the error for too few or too many arguments, or err where Use does not say how
// many there are. check is the rule that args broke.
func wrongArguments(cmd *cobra.Command, args []string, check cobra.PositionalArgs, err error, elsewhere Elsewhere) error {
	words := strings.Fields(cmd.Use)[1:]
	needed := slices.IndexFunc(words, func(w string) bool { return strings.ContainsAny(w[:1], "[{-") })
	if needed < 0 {
		needed = len(words)
	}
	name := nameOf(cmd)
	if len(args) > 0 && elsewhere.similar(cmd, args[0]) != "" {
		return unknownCommand(cmd, args[0], elsewhere)
	}
	switch {
	case len(args) < needed && len(args) > 0 && strings.Contains(words[0], "/") && !strings.Contains(args[0], "/"):
		err = fmt.Errorf("%s: %s is missing before %q", name, words[0], args[0])
	case len(args) < needed:
		err = fmt.Errorf("%s: %s is missing", name, words[len(args)])
	case len(args) > 0:
		most := len(args) - 1
		for most > 0 && check(cmd, args[:most]) != nil {
			most--
		}
		hint, isWhole := tooMany(cmd, args[most], elsewhere)
		err = fmt.Errorf("%s: the argument %q is too many%s", name, args[most], hint)
		if isWhole {
			return err
		}
	}
	if example := firstExample(cmd); example != "" {
		return errors.Join(err, errors.New("for example: "+example))
	}
	return err
}

// tooMany says what an argument that is too many may be for, or how the command is called, for the end of the
// error. It reports whether an example adds nothing to that.
func tooMany(cmd *cobra.Command, extra string, elsewhere Elsewhere) (hint string, isWhole bool) {
	info, err := os.Stat(extra)
	switch {
	case err == nil && info.IsDir() && cmd.Flags().Lookup("repo") != nil:
		return ": a directory is named with --repo " + extra, true
	case err == nil && cmd.Flags().Lookup("config") != nil:
		return ": a configuration is named with -c " + extra, true
	}
	if reason := cmd.Flags().Lookup("reason"); reason != nil && reason.Changed && !strings.Contains(reason.Value.String(), " ") {
		hint = ": put the text of --reason in quotes, if this belongs to it"
	}
	if place := elsewhere.Arguments[nameOf(cmd)]; place != "" {
		return hint + ": " + strings.ReplaceAll(place, "%s", extra), true
	}
	if len(flagNames(cmd)) > 0 {
		return hint + ": " + flagsOf(cmd), true
	}
	return hint, false
}

func firstExample(cmd *cobra.Command) string {
	for line := range strings.Lines(cmd.Example) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line
		}
	}
	return ""
}
