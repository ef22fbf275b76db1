"""Parser of `.proto` files (syntax proto2 and proto3) into file descriptors.

An own parser, because `protoc` is a program of many megabytes that reads files, and no light library parses the
language. The whole language is parsed; parts that do not affect the bytes of a message (services, options other than
`packed`, extensions) are skipped but noted: definitions that differ in them are not the same. Names are resolved and
numbers checked by the descriptor pool that takes the result.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from google.protobuf import descriptor_pb2 as pb2

from raceway.errors import SchemaInvalidError
from raceway.schema.definition import MAX_NESTING

FILE_NAME = "definition.proto"
# 2^29 - 1: three bits of the tag hold the wire type.
MAX_FIELD_NUMBER = 536_870_911
SCALARS = {
    name: getattr(pb2.FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in (
        "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32",
        "sfixed32", "sfixed64", "sint32", "sint64",
    )
}  # fmt: skip
LABELS = {
    "optional": pb2.FieldDescriptorProto.LABEL_OPTIONAL,
    "required": pb2.FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": pb2.FieldDescriptorProto.LABEL_REPEATED,
}
# Language guide, "Maps": any integral or string type can be a key.
MAP_KEYS = SCALARS.keys() - {"double", "float", "bytes"}

# Possessive quantifiers: no definition can make the tokenizer backtrack.
_token = re.compile(
    r"(?P<space>\s++|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)"
    r"|(?P<name>\.?[A-Za-z_][A-Za-z0-9_]*+(?:\.[A-Za-z_][A-Za-z0-9_]*+)*+)"
    r"|(?P<number>[0-9][0-9A-Za-z.]*+(?:(?<=[eE])[+-][0-9]++)?+|\.[0-9][0-9A-Za-z]*+)"
    r"|(?P<text>\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+')"
    r"|(?P<sign>[{}\[\]()<>;=,:+/-])"
)


class Token(NamedTuple):
    """A token and its position."""

    kind: str
    text: str
    at: int


class ProtoFile(NamedTuple):
    """A parsed file. `notes` are the parts that the descriptor does not hold, in no order."""

    descriptor: pb2.FileDescriptorProto
    notes: list[str]


def read_file(text: str) -> ProtoFile:
    """Parse a file. Raises SchemaInvalidError with the line if it is malformed."""
    reader = _ProtoParser(text)
    return ProtoFile(reader.file(), reader.notes)


class _ProtoParser:
    """Recursive-descent parser."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._at = 0
        self._depth = 0
        self._is_proto3 = False
        # Names of the enclosing messages, and the parts found so far that a descriptor does not hold.
        self._scope: list[str] = []
        self.notes: list[str] = []

    # ---- tokens ------------------------------------------------------------------------------------------------------

    def _split(self, text: str) -> list[Token]:
        """Split the text into tokens, dropping white space and comments."""
        tokens: list[Token] = []
        at = 0
        while at < len(text):
            match = _token.match(text, at)
            if match is None:
                raise self._invalid(f"unexpected character {text[at]!r}", at)
            if match.lastgroup != "space":
                tokens.append(Token(match.lastgroup or "", match.group(), at))
            at = match.end()
        tokens.append(Token("end", "end of file", len(text)))
        return tokens

    def _invalid(self, reason: str, at: int | None = None) -> SchemaInvalidError:
        """The error at a position, by default at the current token."""
        line = self._text.count("\n", 0, self._tokens[self._at].at if at is None else at) + 1
        return SchemaInvalidError("definition", f"not a valid Protobuf definition: line {line}: {reason}")

    def _peek(self) -> str:
        """The text of the current token."""
        return self._tokens[self._at].text

    def _next(self, kind: str, what: str) -> str:
        """Take a token of a kind."""
        token = self._tokens[self._at]
        if token.kind != kind:
            raise self._invalid(f"expected {what}, not {token.text!r}")
        self._at += 1
        return token.text

    def _take(self, text: str) -> bool:
        """Take a token if it is `text`, not a string."""
        if self._tokens[self._at].text != text or self._tokens[self._at].kind == "text":
            return False
        self._at += 1
        return True

    def _expect(self, text: str) -> None:
        """Take a token that must be `text`."""
        if not self._take(text):
            raise self._invalid(f"expected {text!r}, not {self._peek()!r}")

    def _name(self) -> str:
        """Take a name without dots."""
        name = self._next("name", "a name")
        if "." in name:
            raise self._invalid(f"expected a name without dots, not {name!r}")
        return name

    def _number(self) -> int:
        """Take an integer."""
        sign = -1 if self._take("-") else 1
        text = self._next("number", "a number")
        try:
            # Language specification: a leading 0 means octal, which Python writes 0o.
            return sign * (int(text, 8) if text.isdigit() and text[0] == "0" and len(text) > 1 else int(text, 0))
        except ValueError:
            raise self._invalid(f"expected an integer, not {text!r}") from None

    def _string(self) -> str:
        """Take a string, without its quotes."""
        return self._next("text", "a string")[1:-1]

    # ---- the file ----------------------------------------------------------------------------------------------------

    def file(self) -> pb2.FileDescriptorProto:
        """Parse the whole file."""
        file = pb2.FileDescriptorProto(name=FILE_NAME)
        file.syntax = self._syntax()
        self._is_proto3 = file.syntax == "proto3"
        while self._tokens[self._at].kind != "end":
            self._top(file)
        return file

    def _syntax(self) -> str:
        """Parse the `syntax` statement; proto2 if there is none."""
        if self._peek() == "edition":
            raise self._invalid('editions are not supported: use `syntax = "proto3";`')
        if not self._take("syntax"):
            return "proto2"
        self._expect("=")
        syntax = self._string()
        self._expect(";")
        if syntax not in ("proto2", "proto3"):
            raise self._invalid(f"unsupported syntax {syntax!r}: use proto2 or proto3")
        return syntax

    def _top(self, file: pb2.FileDescriptorProto) -> None:
        """Parse a top-level statement."""
        if self._take(";"):
            return
        if self._take("package"):
            file.package = self._next("name", "a package name")
            self._expect(";")
        elif self._take("import"):
            self._import(file)
        elif self._take("option"):
            self._option_statement()
        elif self._take("message"):
            self._message(file.message_type.add())
        elif self._take("enum"):
            self._enum(file.enum_type.add())
        elif self._take("service"):
            # Normalized: qualification of types and empty blocks make no difference.
            self._note("service", f"{self._name()} {self._step_over_block()}".replace("{ }", ";"))
        elif self._take("extend"):
            self._extend()
        else:
            raise self._invalid(f"unexpected {self._peek()!r}")

    def _import(self, file: pb2.FileDescriptorProto) -> None:
        """Parse an import."""
        if self._take("public"):
            file.public_dependency.append(len(file.dependency))
        else:
            self._take("weak")
        file.dependency.append(self._string())
        self._expect(";")

    def _note(self, name: str, value: str, at: str = "") -> None:
        """Note a part that the descriptor does not hold."""
        self.notes.append(f"{'.'.join(self._scope)}.{at} {name}={value}")

    def _step_over_block(self) -> str:
        """Skip a block; return its tokens as text."""
        self._expect("{")
        depth, begin = 1, self._at
        while depth:
            token = self._tokens[self._at]
            if token.kind == "end":
                raise self._invalid("unterminated block")
            self._at += 1
            if token.kind == "sign":
                depth += (token.text == "{") - (token.text == "}")
        return self._said_since(begin)

    def _said_since(self, begin: int) -> str:
        """Return the tokens since `begin` as text, names unqualified."""
        tokens = self._tokens[begin : self._at]
        return " ".join(token.text.rpartition(".")[2] if token.kind == "name" else token.text for token in tokens)

    def _extend(self) -> None:
        """Parse an extension, which only notes it: to a reader without it, its fields are unknown fields."""
        begin = self._at
        self._next("name", "a message name")
        self._body(pb2.DescriptorProto(), self._field_of)
        self._note("extend", self._said_since(begin))

    # ---- messages ----------------------------------------------------------------------------------------------------

    def _message(self, message: pb2.DescriptorProto) -> None:
        """Parse a message."""
        message.name = self._name()
        self._message_body(message)

    def _message_body(self, message: pb2.DescriptorProto) -> None:
        """Parse the members of a message."""
        self._scope.append(message.name)
        self._body(message, self._member)
        self._scope.pop()
        # proto3 field presence: an `optional` field gets a synthetic oneof, and those come after the real ones.
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _body(self, message: pb2.DescriptorProto, member: Callable[[pb2.DescriptorProto], None]) -> None:
        """Parse a block of members."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self._invalid(f"nested deeper than {MAX_NESTING} levels")
        self._expect("{")
        while not self._take("}"):
            if not self._take(";"):
                member(message)
        self._depth -= 1

    def _member(self, message: pb2.DescriptorProto) -> None:
        """Parse a member of a message."""
        following = self._tokens[self._at + 1] if self._at + 1 < len(self._tokens) else None
        # Keywords are not reserved words: they count as such only if a name, number or string follows.
        is_keyword = following is not None and following.kind != "sign"
        word = self._peek()
        statements: dict[str, Callable[[], None]] = {
            "message": lambda: self._message(message.nested_type.add()),
            "enum": lambda: self._enum(message.enum_type.add()),
            "oneof": lambda: self._oneof(message),
            "option": self._option_statement,
            "reserved": lambda: self._ranges(message, word),
            "extensions": lambda: self._ranges(message, word),
            "extend": self._extend,
        }
        if word in statements and (is_keyword or word == "option"):
            self._at += 1
            statements[word]()
        else:
            self._field_of(message)

    def _oneof(self, message: pb2.DescriptorProto) -> None:
        """Parse a oneof."""
        place = len(message.oneof_decl)
        message.oneof_decl.add(name=self._name())

        def choice(inner: pb2.DescriptorProto) -> None:
            if self._take("option"):
                self._option()
                self._expect(";")
                return
            before = len(inner.field)
            self._typed_field(inner, LABELS["optional"])
            for field in inner.field[before:]:
                field.oneof_index = place

        self._body(message, choice)

    def _ranges(self, message: pb2.DescriptorProto, word: str) -> None:
        """Parse `reserved` or `extensions`."""
        while True:
            if self._tokens[self._at].kind in ("text", "name"):
                if word == "reserved":
                    message.reserved_name.append(self._peek().strip("\"'"))
                self._at += 1
            else:
                first = self._number()
                last = first
                if self._take("to"):
                    last = MAX_FIELD_NUMBER if self._take("max") else self._number()
                ranges = message.reserved_range if word == "reserved" else message.extension_range
                if first <= last:
                    # In a descriptor the end of a range is exclusive.
                    ranges.add(start=first, end=last + 1)
            if not self._take(","):
                break
        if self._peek() == "[":
            self._options()
        self._expect(";")

    # ---- fields ------------------------------------------------------------------------------------------------------

    def _field_of(self, message: pb2.DescriptorProto) -> None:
        """Parse a field, map or group."""
        word = self._peek()
        if word in LABELS and self._tokens[self._at + 1].kind == "name":
            self._at += 1
            if word == "required" and self._is_proto3:
                raise self._invalid("proto3 has no required fields")
            self._typed_field(message, LABELS[word], says_optional=word == "optional")
        elif word == "map" and self._tokens[self._at + 1].text == "<":
            self._map(message)
        elif self._is_proto3:
            self._typed_field(message, LABELS["optional"])
        else:
            raise self._invalid(f"{word!r}: a proto2 field begins with optional, required or repeated")

    def _typed_field(self, message: pb2.DescriptorProto, label: int, says_optional: bool = False) -> None:
        """Parse a field after its label."""
        field = message.field.add(label=label)
        if self._peek() == "group" and self._tokens[self._at + 1].kind == "name":
            self._group(message, field)
            return
        self._type(field)
        field.name = self._name()
        self._number_and_options(field)
        field.proto3_optional = self._is_proto3 and says_optional

    def _type(self, field: pb2.FieldDescriptorProto) -> None:
        """Parse a field's type."""
        name = self._next("name", "a type")
        if name in SCALARS:
            field.type = SCALARS[name]
        else:
            field.type_name = name  # the pool resolves whether it is a message or an enum

    def _number_and_options(self, field: pb2.FieldDescriptorProto) -> None:
        """Parse a field's number and options."""
        self._expect("=")
        number = self._number()
        if not 1 <= number <= MAX_FIELD_NUMBER:
            raise self._invalid(f"{number} is not a valid field number")
        field.number = number
        if self._peek() == "[":
            options = self._options(field.name)
            packed = options.get("packed")
            if packed is not None and field.label == LABELS["repeated"]:
                field.options.packed = packed == "true"
        self._expect(";")

    def _group(self, message: pb2.DescriptorProto, field: pb2.FieldDescriptorProto) -> None:
        """Parse a group: a field and its message type in one; proto2 only."""
        if self._is_proto3:
            raise self._invalid("proto3 has no groups")
        self._at += 1
        nested = message.nested_type.add(name=self._name())
        # Language specification: the field's name is the group's in lower case.
        field.name, field.type, field.type_name = nested.name.lower(), pb2.FieldDescriptorProto.TYPE_GROUP, nested.name
        self._expect("=")
        field.number = self._number()
        if self._peek() == "[":
            self._options()
        self._message_body(nested)

    def _map(self, message: pb2.DescriptorProto) -> None:
        """Parse a map field, which is a repeated message with a key and a value."""
        self._at += 2
        key = self._next("name", "a type")
        if key not in MAP_KEYS:
            raise self._invalid(f"{key!r} is not a valid key type of a map")
        entry = message.nested_type.add()
        entry.options.map_entry = True
        optional = pb2.FieldDescriptorProto.LABEL_OPTIONAL
        entry.field.add(name="key", number=1, label=optional, type=SCALARS[key])
        self._expect(",")
        self._type(entry.field.add(name="value", number=2, label=optional))
        self._expect(">")
        field = message.field.add(label=pb2.FieldDescriptorProto.LABEL_REPEATED, name=self._name())
        # The entry's name as protoc derives it; the pool checks it.
        entry.name = "".join(part[:1].upper() + part[1:] for part in field.name.split("_")) + "Entry"
        field.type, field.type_name = pb2.FieldDescriptorProto.TYPE_MESSAGE, entry.name
        self._number_and_options(field)

    # ---- enums and options -------------------------------------------------------------------------------------------

    def _enum(self, enum: pb2.EnumDescriptorProto) -> None:
        """Parse an enum."""
        enum.name = self._name()
        self._expect("{")
        while not self._take("}"):
            if self._take(";"):
                continue
            if self._take("option"):
                name, value = self._option()
                if name == "allow_alias":
                    enum.options.allow_alias = value == "true"
                self._expect(";")
            elif self._peek() == "reserved" and self._tokens[self._at + 1].text != "=":
                self._at += 1
                self._ranges_of_enum()
            else:
                value_proto = enum.value.add(name=self._name())
                self._expect("=")
                number = self._number()
                if not -(1 << 31) <= number < 1 << 31:
                    raise self._invalid(f"{number} is not a valid enum value (int32)")
                value_proto.number = number
                if self._peek() == "[":
                    self._options(f"{enum.name}.{value_proto.name}")
                self._expect(";")

    def _ranges_of_enum(self) -> None:
        """Skip `reserved` of an enum."""
        while not self._take(";"):
            if self._tokens[self._at].kind == "end":
                raise self._invalid("unterminated statement")
            self._at += 1

    def _options(self, at: str = "") -> dict[str, str]:
        """Parse bracketed options. `at` is the field or value they belong to."""
        self._expect("[")
        found = {}
        while True:
            name, value = self._option()
            found[name] = value
            self._note(name, value, at)
            if self._take("]"):
                return found
            self._expect(",")

    def _option_statement(self) -> None:
        """Note an option of a file or message."""
        self._note(*self._option())
        self._expect(";")

    def _option(self) -> tuple[str, str]:
        """Parse `name = value`; the name of a custom option is in parentheses."""
        name = ""
        while not self._take("="):
            token = self._tokens[self._at]
            if token.kind not in ("name", "number") and token.text not in ("(", ")"):
                raise self._invalid(f"unexpected {token.text!r} in the name of an option")
            name += token.text
            self._at += 1
        if self._peek() == "{":
            return name, self._step_over_block()
        sign = "-" if self._take("-") else ""
        token = self._tokens[self._at]
        if token.kind not in ("name", "number", "text"):
            raise self._invalid(f"{token.text!r} is not a valid value of an option")
        self._at += 1
        text = token.text
        while self._tokens[self._at].kind == "text":  # adjacent strings are concatenated
            text = text[:-1] + self._tokens[self._at].text[1:]
            self._at += 1
        return name, sign + text
