/**
 * Every word that the page says, in English and Spanish; numbers, money and dates by Intl.
 *
 * `{name}` in a text is filled in by the caller. A text missing in one language does not compile.
 */
import { formatMoney } from './money.ts';

const en = {
  page_title: 'Bill payment',
  loading: 'Getting your bill…',
  test_mode: 'Test mode: no money moves',
  close: 'Close',
  back: 'Back',

  review_title: 'Your bill from {biller}',
  review_nothing_title: 'Nothing is due',
  review_credit_title: 'You have a credit',
  review_unknown_title: 'Pay {biller}',
  amount_due: 'Amount due',
  credit: 'Credit',
  account: 'Account',
  due_on: 'Due {date}',
  due_today: 'Due today',
  was_due_on: 'Was due {date}',
  balance_as_of: 'Balance as of {when}',
  nothing_due: 'Your account is paid up. You can still pay ahead if you like.',
  credit_text: '{biller} owes you this amount. You can still pay ahead if you like.',
  unknown_balance: '{biller} did not tell us the amount due. Please take it from your bill.',
  above_maximum: '{biller} takes at most {max} in one payment.',
  below_minimum: '{biller} takes at least {min} in one payment.',
  fixed_amount: '{biller} takes exactly {amount}.',
  pay_amount: 'Pay {amount}',
  other_amount: 'Pay another amount',
  choose_amount: 'Choose an amount',

  amount_title: 'How much would you like to pay?',
  amount_label: 'Amount in US dollars',
  amount_full: 'Amount due: {amount}',
  amount_between: 'Between {min} and {max}',
  amount_at_least: 'At least {min}',
  amount_at_most: 'At most {max}',
  amount_empty: 'Enter an amount, for example {example}.',
  amount_unclear: 'Enter an amount in dollars and cents, for example {example}.',
  amount_too_small: 'Enter {min} or more.',
  amount_too_large: 'Enter {max} or less.',
  continue: 'Continue',

  confirm_title: 'Check your payment',
  pay_to: 'To',
  amount: 'Amount',
  pay_with: 'Pay with',
  confirm_note: 'Nothing is paid until you press the button.',
  pay_now: 'Pay {amount} now',
  sending: 'Sending…',

  status_title: 'Your payment is on its way',
  step_sent: 'Sent to {biller}',
  step_accepted: 'Accepted by {biller}',
  step_posted: 'Posted to your account',
  step_done: 'done',
  step_now: 'in progress',
  step_next: 'still to come',
  waiting_for: 'Waiting for {time}',
  leave_note: 'You can close this page. The payment goes on without it.',
  slow_note: '{biller} is taking longer than usual. Nothing is wrong with your payment.',
  reference: 'Reference',

  failed_title: 'The payment did not go through',
  failed_note: 'No money has been taken.',
  reason_from: '{biller} says:',
  no_reason: '{biller} gave no reason.',
  try_again: 'Try again',
  duplicate_title: 'You may have paid this already',
  duplicate_note:
    '{biller} already has a payment like this one, so it did not take a second. No money has been taken for this one.',
  canceled_title: 'The payment was canceled',
  canceled_note: '{biller} canceled it before it was posted. No money has been taken.',

  receipt_title: 'Paid. Thank you!',
  receipt: 'Receipt',
  initiated: 'Accepted',
  posted: 'Posted',
  biller_reference: 'Reference at {biller}',
  print: 'Print',
  save: 'Save',
  save_text: 'Save as text',
  done: 'Done',

  offline: 'Connection lost. Trying again…',
  offline_sending: 'Connection lost. We keep trying; you will not be charged twice.',
  ends_soon: 'This page closes at {time}.',
  stay: 'Stay',
  ask_close: 'Your payment is being sent. Close the page all the same?',
  ask_close_yes: 'Close it',
  ask_close_no: 'Keep it open',

  problem_reference: 'Reference: {id}',
  problem_origin_not_allowed: 'This payment page cannot be shown here',
  problem_origin_not_allowed_text:
    'The site you came from is not set up to show it. You have not been charged.',
  problem_alone: 'Please open this page from your biller’s site',
  problem_alone_text: 'It cannot be opened on its own. You have not been charged.',
  problem_token_invalid: 'We could not start the payment',
  problem_token_invalid_text:
    'The site did not give us a valid pass for it. You have not been charged. Go back to the site and open the payment again.',
  problem_token_expired: 'This page has been open for a long time',
  problem_token_expired_text:
    'It has ended for your safety. Nothing is lost: a payment that you made goes on. To continue, open it again.',
  problem_account_not_found: 'We could not find this account',
  problem_account_not_found_text:
    'Please check the account with {biller}. You have not been charged.',
  problem_partner_unreachable: 'We cannot reach {biller} right now',
  problem_partner_unreachable_text: 'You have not been charged. Please try again in a moment.',
  problem_network_lost: 'The connection is lost',
  problem_network_lost_text: 'We are trying again. You need not do anything.',
  problem_internal: 'Something went wrong on our side',
  problem_internal_text:
    'Please try again. If you had pressed the pay button, we look up that payment first: you are not charged twice.',
  the_biller: 'the biller',
} as const;

export type Word = keyof typeof en;

const es: Readonly<Record<Word, string>> = {
  page_title: 'Pago de facturas',
  loading: 'Buscando su factura…',
  test_mode: 'Modo de prueba: no se mueve dinero',
  close: 'Cerrar',
  back: 'Atrás',

  review_title: 'Su factura de {biller}',
  review_nothing_title: 'No debe nada',
  review_credit_title: 'Tiene saldo a favor',
  review_unknown_title: 'Pagar a {biller}',
  amount_due: 'Importe a pagar',
  credit: 'Saldo a favor',
  account: 'Cuenta',
  due_on: 'Vence el {date}',
  due_today: 'Vence hoy',
  was_due_on: 'Venció el {date}',
  balance_as_of: 'Saldo al {when}',
  nothing_due: 'Su cuenta está al día. Si lo desea, puede pagar por adelantado.',
  credit_text: '{biller} le debe este importe. Si lo desea, puede pagar por adelantado.',
  unknown_balance: '{biller} no nos informó el importe. Por favor, tómelo de su factura.',
  above_maximum: '{biller} acepta como máximo {max} por pago.',
  below_minimum: '{biller} acepta como mínimo {min} por pago.',
  fixed_amount: '{biller} acepta exactamente {amount}.',
  pay_amount: 'Pagar {amount}',
  other_amount: 'Pagar otro importe',
  choose_amount: 'Elegir un importe',

  amount_title: '¿Cuánto desea pagar?',
  amount_label: 'Importe en dólares',
  amount_full: 'Importe a pagar: {amount}',
  amount_between: 'Entre {min} y {max}',
  amount_at_least: 'Como mínimo {min}',
  amount_at_most: 'Como máximo {max}',
  amount_empty: 'Escriba un importe, por ejemplo {example}.',
  amount_unclear: 'Escriba un importe en dólares y centavos, por ejemplo {example}.',
  amount_too_small: 'Escriba {min} o más.',
  amount_too_large: 'Escriba {max} o menos.',
  continue: 'Continuar',

  confirm_title: 'Revise su pago',
  pay_to: 'Para',
  amount: 'Importe',
  pay_with: 'Pagar con',
  confirm_note: 'No se paga nada hasta que presione el botón.',
  pay_now: 'Pagar {amount} ahora',
  sending: 'Enviando…',

  status_title: 'Su pago está en camino',
  step_sent: 'Enviado a {biller}',
  step_accepted: 'Aceptado por {biller}',
  step_posted: 'Registrado en su cuenta',
  step_done: 'hecho',
  step_now: 'en curso',
  step_next: 'pendiente',
  waiting_for: 'Esperando desde hace {time}',
  leave_note: 'Puede cerrar esta página. El pago sigue sin ella.',
  slow_note: '{biller} tarda más de lo habitual. Su pago no tiene ningún problema.',
  reference: 'Referencia',

  failed_title: 'El pago no se pudo realizar',
  failed_note: 'No se ha cobrado nada.',
  reason_from: '{biller} dice:',
  no_reason: '{biller} no dio un motivo.',
  try_again: 'Intentar de nuevo',
  duplicate_title: 'Es posible que ya lo haya pagado',
  duplicate_note:
    '{biller} ya tiene un pago como este, así que no aceptó un segundo. Por este no se ha cobrado nada.',
  canceled_title: 'El pago fue cancelado',
  canceled_note: '{biller} lo canceló antes de registrarlo. No se ha cobrado nada.',

  receipt_title: 'Pagado. ¡Gracias!',
  receipt: 'Recibo',
  initiated: 'Aceptado',
  posted: 'Registrado',
  biller_reference: 'Referencia en {biller}',
  print: 'Imprimir',
  save: 'Guardar',
  save_text: 'Guardar como texto',
  done: 'Listo',

  offline: 'Sin conexión. Intentando de nuevo…',
  offline_sending: 'Sin conexión. Seguimos intentando; no se le cobrará dos veces.',
  ends_soon: 'Esta página se cierra a las {time}.',
  stay: 'Continuar aquí',
  ask_close: 'Su pago se está enviando. ¿Cerrar la página de todos modos?',
  ask_close_yes: 'Cerrarla',
  ask_close_no: 'Dejarla abierta',

  problem_reference: 'Referencia: {id}',
  problem_origin_not_allowed: 'Esta página de pago no se puede mostrar aquí',
  problem_origin_not_allowed_text:
    'El sitio del que viene no está preparado para mostrarla. No se le ha cobrado nada.',
  problem_alone: 'Abra esta página desde el sitio de su empresa',
  problem_alone_text: 'No se puede abrir por sí sola. No se le ha cobrado nada.',
  problem_token_invalid: 'No pudimos iniciar el pago',
  problem_token_invalid_text:
    'El sitio no nos dio un pase válido. No se le ha cobrado nada. Vuelva al sitio y abra el pago otra vez.',
  problem_token_expired: 'Esta página ha estado abierta mucho tiempo',
  problem_token_expired_text:
    'Se cerró por su seguridad. No se pierde nada: un pago que ya hizo sigue su curso. Para continuar, ábrala de nuevo.',
  problem_account_not_found: 'No encontramos esta cuenta',
  problem_account_not_found_text:
    'Por favor, revise la cuenta con {biller}. No se le ha cobrado nada.',
  problem_partner_unreachable: 'No podemos comunicarnos con {biller} ahora',
  problem_partner_unreachable_text:
    'No se le ha cobrado nada. Por favor, intente de nuevo en un momento.',
  problem_network_lost: 'Se perdió la conexión',
  problem_network_lost_text: 'Estamos intentando de nuevo. No necesita hacer nada.',
  problem_internal: 'Algo salió mal de nuestro lado',
  problem_internal_text:
    'Por favor, intente de nuevo. Si ya había presionado el botón de pagar, primero buscamos ese pago: no se le cobra dos veces.',
  the_biller: 'la empresa',
};

/** The catalogues, for the test that compares them. */
export const CATALOGUES: Readonly<Record<'en' | 'es', Readonly<Record<Word, string>>>> = { en, es };

/** One language: its words and its ways of writing money and time. */
export interface Language {
  /** For `<html lang>`: of the words. */
  readonly tag: 'en' | 'es';
  /** For Intl: of numbers and dates. */
  readonly locale: string;
  readonly say: (word: Word, values?: Readonly<Record<string, string>>) => string;
  readonly money: (cents: number) => string;
  /** A calendar date (YYYY-MM-DD), the same day wherever the customer is. */
  readonly date: (day: string) => string;
  /** An instant, in the customer's zone, which is named. */
  readonly instant: (iso: string) => string;
  readonly clock: (ms: number) => string;
  /** "12 seconds", "3 minutes". */
  readonly duration: (seconds: number) => string;
}

/** Takes the locale that the site asked for; other languages than English and Spanish get English. */
export function language(asked: string): Language {
  const tag = /^es\b/i.test(asked) ? 'es' : 'en';
  const locale = usable(asked, tag) ? asked : `${tag}-US`;
  const format = (options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat =>
    new Intl.DateTimeFormat(locale, options);
  return {
    tag,
    locale,
    say: (word, values = {}) =>
      CATALOGUES[tag][word].replaceAll(/\{(\w+)\}/g, (_, name: string) => values[name] ?? ''),
    money: (cents) => formatMoney(cents, locale),
    // A calendar date has no zone: formatted in one west of Greenwich it would slip a day.
    date: (day) =>
      format({ dateStyle: 'long', timeZone: 'UTC' }).format(new Date(`${day}T00:00:00Z`)),
    instant: (iso) =>
      format({
        year: 'numeric',
        month: 'short',
        day: 'numeric',
        hour: 'numeric',
        minute: '2-digit',
        timeZoneName: 'short',
      }).format(new Date(iso)),
    clock: (ms) => format({ timeStyle: 'short' }).format(ms),
    duration(seconds) {
      const unit = seconds < 60 ? 'second' : 'minute';
      const value = seconds < 60 ? seconds : Math.floor(seconds / 60);
      return new Intl.NumberFormat(locale, { style: 'unit', unit, unitDisplay: 'long' }).format(
        value,
      );
    },
  };
}

/** A bare "en" or "es" means that language in the United States, whose dollars these are. */
function usable(asked: string, tag: string): boolean {
  try {
    const found = new Intl.Locale(asked);
    return found.language === tag && found.region !== undefined;
  } catch {
    return false;
  }
}
