/**
 * The sample's guard for admin routes: a bearer token that has the role `admin`. Tokens come from the environment as
 * `ADMIN_TOKENS=name:role:token,…`, e.g. `ada:admin:3f9c…`; without it nobody passes. Never logs a token.
 */
import { Injectable, UnauthorizedException, type CanActivate, type ExecutionContext } from '@nestjs/common';
import { createHash, timingSafeEqual } from 'node:crypto';

interface Account {
  readonly name: string;
  readonly role: string;
  readonly digest: Buffer;
}

const ADMIN = 'admin';
/** A token that can be guessed is none. */
const MIN_TOKEN_CHARS = 16;

@Injectable()
export class AdminTokensGuard implements CanActivate {
  private readonly accounts = readAccounts(process.env['ADMIN_TOKENS'] ?? '');

  canActivate(context: ExecutionContext): boolean {
    const request = context.switchToHttp().getRequest<{ headers: { authorization?: string }; user?: object }>();
    const token = /^Bearer (\S+)$/i.exec(request.headers.authorization ?? '')?.[1];
    const account = token === undefined ? undefined : this.find(token);
    if (!account) throw new UnauthorizedException('a bearer token is needed');
    request.user = { name: account.name, role: account.role };
    return account.role === ADMIN;
  }

  /** Digests are of one length and all are compared, so the time of an answer tells nothing about a token. */
  private find(token: string): Account | undefined {
    const digest = digestOf(token);
    return this.accounts.reduce<Account | undefined>(
      (found, account) => (timingSafeEqual(account.digest, digest) ? account : found),
      undefined,
    );
  }
}

function readAccounts(text: string): Account[] {
  const entries = text.split(',').filter((entry) => entry.trim() !== '');
  return entries.map((entry) => {
    const [name = '', role = '', token = ''] = entry.trim().split(':');
    if (name === '' || role === '' || token.length < MIN_TOKEN_CHARS) {
      throw new Error(`ADMIN_TOKENS: expected name:role:token with a token of ${MIN_TOKEN_CHARS} characters or more`);
    }
    return { name, role, digest: digestOf(token) };
  });
}

function digestOf(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}
