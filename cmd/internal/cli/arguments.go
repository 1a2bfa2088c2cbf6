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

// NameArguments gives a command and its subcommands errors for people. A wrong number of arguments
// names the argument, in the words of Use, and shows the first example. An unknown subcommand gets
// a suggestion; elsewhere has one for each command of another tool.
func NameArguments(root *cobra.Command, elsewhere map[string]string) {
	if !root.HasParent() {
		root.InitDefaultCompletionCmd()
		root.SetHelpCommand(helpCommand(root, elsewhere))
	}
	for _, cmd := range root.Commands() {
		NameArguments(cmd, nil)
	}
	if root.HasSubCommands() && !root.Runnable() {
		root.Annotations, root.DisableFlagsInUseLine = map[string]string{group: ""}, true
		root.Args = cobra.ArbitraryArgs
		root.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return Usage(unknownCommand(cmd, args[0], elsewhere))
		}
		root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
			if word := cmd.Flags().Arg(0); word != "" && cmd == root {
				return Usage(unknownCommand(cmd, word, elsewhere)) // an unknown command has unknown flags
			}
			return wrongFlag(cmd, err)
		})
		return
	}
	check := root.Args
	if check == nil {
		return
	}
	root.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		var ours *ExitError // with words of its own
		if err == nil || errors.As(err, &ours) {
			return err
		}
		return wrongArguments(cmd, args, err)
	}
}

// WrapHelp wraps the flags in the help of a command and its subcommands.
func WrapHelp(root *cobra.Command) {
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), "FlagUsages ", fmt.Sprintf("FlagUsagesWrapped %d ", helpWidth)))
}

// helpWidth is the width of the text of help.
const helpWidth = 80

// helpCommand is the help command of cobra, with an error for an unknown command.
func helpCommand(root *cobra.Command, elsewhere map[string]string) *cobra.Command {
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
func unknownCommand(cmd *cobra.Command, word string, elsewhere map[string]string) error {
	if instead, known := elsewhere[word]; known {
		return fmt.Errorf("unknown command %q: %s", word, instead)
	}
	for _, sub := range cmd.Commands() {
		if slices.Contains(sub.SuggestFor, word) { // before a command whose name is similar
			return fmt.Errorf("unknown command %q: did you mean %q?", word, strings.TrimPrefix(sub.CommandPath(), cmd.Root().Name()+" "))
		}
	}
	cmd.SuggestionsMinimumDistance = 2
	if like := cmd.SuggestionsFor(word); len(like) > 0 {
		return fmt.Errorf("unknown command %q: did you mean %q?", word, strings.TrimPrefix(cmd.CommandPath()+" "+like[0], cmd.Root().Name()+" "))
	}
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return fmt.Errorf("unknown command %q: %s has %s", word, cmd.CommandPath(), strings.Join(names, ", "))
}

// wrongFlag is the error for a flag that there is not, or that has a wrong value.
func wrongFlag(cmd *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	if !errors.As(err, &value) {
		return unknownFlag(cmd, err)
	}
	flag, got := "--"+value.GetFlag().Name, value.GetValue()
	switch value.GetFlag().Value.Type() {
	case "int", "uint", "int64":
		return fmt.Errorf("%s: %q is not a whole number", flag, got)
	case "duration":
		if _, err := strconv.Atoi(got); err == nil {
			return fmt.Errorf("%s: %s has no unit: write %ss, %sm or %sh", flag, got, got, got, got)
		}
		return fmt.Errorf("%s: %q is not a duration: write one such as 90s, 10m or 1h30m", flag, got)
	case "stringToString":
		form, _, _ := strings.Cut(value.GetFlag().Usage, ":") // such as NAME=DIR
		return fmt.Errorf("%s: %q is not %s", flag, got, form)
	case "bool":
		return fmt.Errorf("%s: %q is neither true nor false", flag, got)
	}
	return fmt.Errorf("%s: %w", flag, errors.Unwrap(value))
}

// unknownFlag adds to the error of an unknown flag the one that is meant, or those that there are.
func unknownFlag(cmd *cobra.Command, err error) error {
	name, isLong := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !isLong && !strings.HasPrefix(err.Error(), "unknown shorthand flag") {
		return err
	}
	names := flagNames(cmd)
	known := &cobra.Command{SuggestionsMinimumDistance: 2} // cobra suggests commands only
	for _, n := range names {
		known.AddCommand(&cobra.Command{Use: strings.TrimPrefix(n, "--"), Run: func(*cobra.Command, []string) {}})
	}
	if like := known.SuggestionsFor(name); isLong && len(like) > 0 {
		return fmt.Errorf("%w: did you mean --%s?", err, like[0])
	}
	return fmt.Errorf("%w: %s has %s", err, cmd.CommandPath(), strings.Join(names, ", "))
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
// many there are.
func wrongArguments(cmd *cobra.Command, args []string, err error) error {
	words := strings.Fields(cmd.Use)[1:]
	needed := slices.IndexFunc(words, func(w string) bool { return strings.ContainsAny(w[:1], "[{-") })
	if needed < 0 {
		needed = len(words)
	}
	name := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
	if cmd.SuggestionsMinimumDistance = 2; len(args) > 0 && len(cmd.SuggestionsFor(args[0])) > 0 {
		return unknownCommand(cmd, args[0], nil)
	}
	switch {
	case len(args) < needed && len(args) > 0 && strings.Contains(words[0], "/") && !strings.Contains(args[0], "/"):
		err = fmt.Errorf("%s: %s is missing before %q", name, words[0], args[0])
	case len(args) < needed:
		err = fmt.Errorf("%s: %s is missing", name, words[len(args)])
	case len(args) > 0:
		extra := args[min(needed+optional(words[needed:]), len(args)-1)]
		err = fmt.Errorf("%s: the argument %q is too many", name, extra)
		if info, no := os.Stat(extra); cmd.Flags().Lookup("repo") != nil && no == nil && info.IsDir() {
			return fmt.Errorf("%w: a directory is named with --repo %s", err, extra)
		}
		if names := flagNames(cmd); len(names) > 0 {
			return fmt.Errorf("%w: %s has %s", err, cmd.CommandPath(), strings.Join(names, ", "))
		}
	}
	if example := firstExample(cmd); example != "" {
		return errors.Join(err, errors.New("for example: "+example))
	}
	return err
}

// optional counts the words such as [NAME] and [KIND that stand first.
func optional(words []string) (n int) {
	for n < len(words) && strings.HasPrefix(words[n], "[") && !strings.HasPrefix(words[n], "[-") {
		n++
	}
	return n
}

func firstExample(cmd *cobra.Command) string {
	for line := range strings.Lines(cmd.Example) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line
		}
	}
	return ""
}
